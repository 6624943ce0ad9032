"""Statistics of comparisons of arms: ways to a model, trained with several seeds and scored on the same examples.

`multibootstrap` holds scores on resamples and averages them over tasks, `estimates` makes intervals, `decision` says
which arms are best and which to stop early, `outlook` where an arm would be with a larger budget, and `effects`
what the settings of a design contribute. Everything is a function of NumPy arrays.
"""
