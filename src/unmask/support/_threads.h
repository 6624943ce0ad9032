/* Work for several of OpenMP's threads: equal shares, or tasks with which the others help.

   After each piece of work all of OpenMP's threads wait for each other, so that one that another program keeps from its
   core holds up all of them. The layers of an encoder are dozens of pieces of work; those of a text alone are short, and it
   would wait for a time slice of the other program at each, many times as long as it takes. So in layers that are one call
   the others only help: whoever is running takes the next tasks, and nobody waits for a thread that has not begun one. */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define EACH_THREAD 4 /* parts of the tasks, which a thread takes one after the other */

typedef void (*Work)(const void *about, Py_ssize_t task);

/* The tasks with which others help. The ticket has a number, and in 16 bits each how many parts there are and which is
   next, so that who takes a part knows that it is of these tasks, which remain until no part is left. */
typedef struct {
    _Atomic uint64_t ticket;
    _Atomic Py_ssize_t left;
    _Atomic int done; /* whether no more will follow */
    Work work;
    const void *about;
    Py_ssize_t tasks, parts;
} Tasks;

/* The threads that compute something; where there are `tasks`, one does, and the others are in `help`. */
typedef struct {
    int threads;
    Tasks *tasks;
} Team;

/* Return the number of the thread among those that compute something. */
static inline int this_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static inline void look_again(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_pause();
#endif
}

/* Compute parts of the tasks until none is next. */
static void take_parts(Tasks *t)
{
    uint64_t ticket = atomic_load(&t->ticket);
    while ((ticket & 0xffff) < (ticket >> 16 & 0xffff)) {
        if (!atomic_compare_exchange_weak(&t->ticket, &ticket, ticket + 1)) continue;
        const Py_ssize_t part = ticket & 0xffff, stop = t->tasks * (part + 1) / t->parts;
        for (Py_ssize_t task = t->tasks * part / t->parts; task < stop; task++) t->work(t->about, task);
        atomic_fetch_sub(&t->left, 1);
        ticket = atomic_load(&t->ticket);
    }
}

/* Help with all tasks that there will be. */
static void help(Tasks *t)
{
    for (; !atomic_load(&t->done); look_again()) take_parts(t);
}

/* Compute all tasks, by the threads of a team if they are `several`. */
static void share(Team team, int several, Py_ssize_t tasks, Work work, const void *about)
{
    Tasks *const t = team.tasks;
    if (t && several && tasks > 1) {
        const Py_ssize_t most = EACH_THREAD * (team.threads < 1024 ? team.threads : 1024);
        t->work = work, t->about = about, t->tasks = tasks, t->parts = tasks < most ? tasks : most;
        atomic_store(&t->left, t->parts);
        atomic_store(&t->ticket, ((atomic_load(&t->ticket) >> 32) + 1) << 32 | (uint64_t)t->parts << 16);
        take_parts(t);
        while (atomic_load(&t->left)) look_again();
        return;
    }
#pragma omp parallel for schedule(static) num_threads(team.threads) if (!t && several && team.threads > 1)
    for (Py_ssize_t task = 0; task < tasks; task++) work(about, task);
}
