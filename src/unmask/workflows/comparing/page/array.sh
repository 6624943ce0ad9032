#!/bin/bash
#SBATCH --job-name=unmask-compare
#SBATCH --array=1-{workers}
#SBATCH --cpus-per-task=2
#SBATCH --time=24:00:00
#SBATCH --requeue
# Each task takes cells that no other one computes, in a directory that all machines share. The report is written by
# each of them at its end, and by the same command at any time.
srun {command}
