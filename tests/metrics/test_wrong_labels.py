"""Which labels are probably wrong, in cases that one sees at a glance; test_confident_learning.py compares many."""

import numpy as np

from unmask.metrics.label_quality import confident_joint, noise_rate, probably_wrong


def test_a_label_that_is_improbable_is_wrong():
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    probabilities = np.array([[0.9, 0.1]] * 3 + [[0.1, 0.9]] * 5)
    assert probably_wrong(labels, probabilities).tolist() == [False] * 3 + [True] + [False] * 4
    assert confident_joint(labels, probabilities).tolist() == [[3, 1], [0, 4]]
    assert noise_rate(confident_joint(labels, probabilities)) == 1 / 8


def test_nothing_is_wrong_if_probabilities_agree_with_labels():
    labels = np.array([0, 1, 2, 0, 1, 2])
    probabilities = np.full((6, 3), 0.1)
    probabilities[np.arange(6), labels] = 0.8
    assert not probably_wrong(labels, probabilities).any()
    assert noise_rate(confident_joint(labels, probabilities)) == 0


def test_a_class_without_examples_has_no_wrong_labels():
    labels, probabilities = np.array([0, 0, 0, 2, 2, 2]), np.full((6, 3), 1 / 3)
    joint = confident_joint(labels, probabilities)
    assert joint[1].sum() == 0
    assert joint.sum(1).tolist() == [3, 0, 3]
