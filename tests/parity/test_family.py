"""Parity of all families but BERT with transformers: outputs and gradients.

Both directions are tested, for random models of several shapes and with each head, ALBERT's two pretraining heads also
together (as BERT's in test_bert.py). Of replaced token detection only the discriminator is compared
(objectives/test_replaced_token.py tests the generator too). As in test_bert.py, weights are scaled up; outputs agree
within 1e-5 of their largest magnitude, each parameter's gradient within 1e-4 of its norm.
"""

import re

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.albert import AlbertSettings
from unmask.families.checkpoints import huggingface
from unmask.model.model import load_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.tasks.answer_head import AnswerHead
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.regression import RegressionHead
from unmask.tasks.token_classification import TokenClassificationHead

from .conftest import assert_same_gradients, gradients_by_our_names, our_gradients, scale

BODY = {"vocab_size": 300, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
MODERN = {**BODY, "num_hidden_layers": 4, "max_position_embeddings": 128, "pad_token_id": 0}
EURO = {**MODERN, "num_hidden_layers": 2, "bos_token_id": 2, "eos_token_id": 3, "mask_token_id": 4}
DISTIL = {"vocab_size": 300, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}
DISENTANGLED = {
    "relative_attention": True,
    "position_buckets": 16,
    "max_relative_positions": 60,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}
SHAPES = {
    "roberta": ("Roberta", {**BODY, "max_position_embeddings": 130, "type_vocab_size": 1}),
    "roberta, padding 0, two segments": ("Roberta", {**BODY, "max_position_embeddings": 101, "pad_token_id": 0}),
    "roberta, relu": ("Roberta", {**BODY, "max_position_embeddings": 130, "hidden_act": "relu"}),
    "xlm-roberta": ("XLMRoberta", {**BODY, "max_position_embeddings": 130, "type_vocab_size": 1}),
    "camembert": ("Camembert", {**BODY, "max_position_embeddings": 130, "type_vocab_size": 1}),
    "mpnet": ("MPNet", {**BODY, "max_position_embeddings": 202}),
    "mpnet, relu": ("MPNet", {**BODY, "max_position_embeddings": 130, "hidden_act": "relu"}),
    "deberta": ("DebertaV2", {**BODY, **DISENTANGLED}),
    "deberta, convolution": ("DebertaV2", {**BODY, **DISENTANGLED, "conv_kernel_size": 3, "conv_act": "gelu"}),
    "deberta, segments, not bucketed": (
        "DebertaV2",
        {**BODY, **DISENTANGLED, "type_vocab_size": 2, "norm_rel_ebd": "none", "position_buckets": -1},
    ),
    "albert": ("Albert", {**BODY, "embedding_size": 16, "max_position_embeddings": 128}),
    "albert, not narrow": ("Albert", {**BODY, "embedding_size": 48, "max_position_embeddings": 128}),
    "albert, not shared": ("Albert", {**BODY, "embedding_size": 24, "num_hidden_groups": 2, "hidden_act": "gelu"}),
    "electra": ("Electra", {**BODY, "embedding_size": 16, "max_position_embeddings": 128}),
    "electra, not narrow": ("Electra", {**BODY, "embedding_size": 48}),
    "electra, gelu_new": ("Electra", {**BODY, "embedding_size": 16, "hidden_act": "gelu_new"}),
    "electra, relu": ("Electra", {**BODY, "embedding_size": 16, "hidden_act": "relu"}),
    "roformer": ("RoFormer", {**BODY, "max_position_embeddings": 128}),
    "roformer, narrow": ("RoFormer", {**BODY, "embedding_size": 16, "hidden_act": "gelu_new"}),
    "modernbert": ("ModernBert", {**MODERN, "local_attention": 16}),
    "modernbert, mean": ("ModernBert", {**MODERN, "local_attention": 20, "classifier_pooling": "mean"}),
    "modernbert, biases": ("ModernBert", {**MODERN, "attention_bias": True}),
    "nomic": ("NomicBert", {**BODY, "max_position_embeddings": 128}),
    "nomic, one segment": ("NomicBert", {**BODY, "type_vocab_size": 1, "hidden_act": "gelu"}),
    "eurobert": ("EuroBert", {**EURO, "num_key_value_heads": 2, "classifier_pooling": "mean"}),
    "eurobert, first": ("EuroBert", {**EURO, "classifier_pooling": "bos"}),
    "distilbert": ("DistilBert", {**DISTIL, "max_position_embeddings": 128}),
    "xlnet": ("XLNet", {"vocab_size": 300, "d_model": 48, "n_layer": 2, "n_head": 4, "d_inner": 96}),
    "xlnet, relu": ("XLNet", {"vocab_size": 300, "d_model": 32, "n_layer": 2, "n_head": 2, "ff_activation": "relu"}),
    "gpt": ("OpenAIGPT", {"vocab_size": 300, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "gpt, relu": ("OpenAIGPT", {"vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_head": 2, "afn": "relu"}),
}
BOTH = "masked_lm + sentence_order"
ONLY = {"sentence_order": "albert", BOTH: "albert", "replaced_token": "electra", "causal_lm": "gpt"}
"""Heads that only one family has."""
LACKING = {
    "gpt": ("masked_lm", "regression", "question_answering", "token_classification"),
    "xlnet": ("masked_lm",),
    **dict.fromkeys(("nomic", "eurobert"), ("question_answering",)),
}
"""Heads that a family lacks in transformers; permutation_lm is compared in test_xlnet.py."""
EXTRACT = 4
"""The token at the end of GPT's texts; it must not be 0, the id that marks padding elsewhere."""
HEADS = {
    "masked_lm": "ForMaskedLM",
    "sentence_order": "ForPreTraining",
    BOTH: "ForPreTraining",
    "replaced_token": "ForPreTraining",
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "question_answering": "ForQuestionAnswering",
    "token_classification": "ForTokenClassification",
    "causal_lm": "LMHeadModel",
}
LANGUAGE_MODELS = ("masked_lm", "causal_lm")
"""Heads that variants of a family's first shape have by default; with the others they run exhaustively."""
ALIKE = ("xlm-roberta", "camembert")
"""RoBERTa under other names: by default with these heads and a classifier."""


def _case(shape, head):
    """Return a case, marked where another one runs the same lines: regression has the head of classification."""
    if head == "classification":
        repeats = "," in shape and not ("xlnet" in shape or "mean" in shape)
    else:
        repeats = ("," in shape or shape in ALIKE) and head not in LANGUAGE_MODELS
    repeats |= head == "regression" and shape != "roberta"
    return pytest.param(shape, head, marks=pytest.mark.exhaustive if repeats else ())


CASES = [
    _case(shape, head)
    for shape in SHAPES
    for head in HEADS
    if shape.startswith(ONLY.get(head, "")) and head not in LACKING.get(shape.partition(",")[0], ())
]
LENGTHS = [(1,), (17,), (90,), (1, 1), (20, 30)]


def class_of(shape, head):
    """Return the class of transformers; XLNet's question answering head without beams has another name."""
    name = SHAPES[shape][0] + HEADS[head]
    return getattr(transformers, name.replace("XLNetForQuestionAnswering", "XLNetForQuestionAnsweringSimple"))


def theirs_of(shape, head, **other):
    settings, kind = SHAPES[shape][1], class_of(shape, head)
    labels = {"regression": 1, "sentence_order": 2, BOTH: 2}.get(head, 2 if head == "question_answering" else 3)
    torch.manual_seed(0)
    return kind(kind.config_class(**settings, num_labels=labels, **other))


def build_head(name, settings, vocabulary):
    tasks = {
        "classification": lambda: ClassificationHead(settings.head, 3),
        "regression": lambda: RegressionHead(settings.head, 0.0, 1.0),
        "question_answering": lambda: AnswerHead(settings.head),
        "token_classification": lambda: TokenClassificationHead(settings.head, 3),
    }
    return tasks[name]() if name in tasks else OBJECTIVES[name]().build(BuildContext(settings.build(vocabulary)))


def from_theirs(theirs, head, directory):
    """Return our learner with the weights of transformers' model, read from the directory that it writes."""
    theirs.save_pretrained(directory)
    found = huggingface.read(directory)
    encoder = found.settings.build(found.vocabulary)
    missing, unexpected = encoder.load_state_dict(found.encoder, strict=False)
    assert not unexpected
    assert set(missing) <= {"pooler.weight", "pooler.bias"}
    parts = {name: build_head(name, found.settings, found.vocabulary) for name in head.split(" + ")}
    for name, part in parts.items():
        missing, unexpected = part.load_state_dict(found.heads[name], strict=False)
        assert not unexpected
        assert all(key.startswith("generator.") for key in missing), (
            "the generator has a directory of its own in transformers"
        )
    return Learner(encoder, parts).eval()


def samples(summary="first"):
    """Return texts and pairs; token-level heads predict every token except the special tokens around it."""
    rng, made = np.random.default_rng(0), []
    frame = Frame(cls=2, sep=3, extract=EXTRACT if summary == "extract" else None, last=summary == "last")
    for number, lengths in enumerate(LENGTHS):
        sample = frame.wrap(*(rng.integers(5, 300, n) for n in lengths)).named((number,))
        inside, whole = np.arange(len(sample) - 2) + frame.start, np.arange(len(sample))
        positions = {"masked": inside, "first": inside, "next": inside, "passage": whole, "every": whole}
        made.append(sample.add(positions=positions))
    return made


def run_ours(learner):
    """Return the logits of each head in the order of the samples."""
    made = samples(learner.encoder.settings.summary)
    batch = collate(made)
    encoded, outputs = learner.encoder(batch.tokens), {}
    for name, part in learner.parts.items():
        sizes = [len(made[number].positions[part.at]) for (number,) in batch.keys]
        logits = part.predict(learner.encoder, encoded, batch).split(sizes)
        found = {number: value for (number,), value in zip(batch.keys, logits, strict=True)}
        outputs[name] = torch.cat([found[number] for number in range(len(found))])
    return outputs


def run_theirs(theirs, heads):
    """Return the logits of transformers' model, each sequence alone, so that nothing is padded."""
    found = {head: [] for head in heads}
    summary = {"openai-gpt": "extract", "xlnet": "last"}.get(theirs.config.model_type, "first")
    for sample in samples(summary):
        inputs = {"input_ids": torch.from_numpy(sample.ids)[None]}
        if getattr(theirs.config, "type_vocab_size", 1) > 1 or summary == "last":
            inputs["token_type_ids"] = torch.from_numpy(sample.segments)[None]
        out = theirs(**inputs)
        for head, logits in found.items():
            if head == "question_answering":
                logits.append(torch.stack([out.start_logits[0], out.end_logits[0]], 1))
            elif head == "sentence_order":
                logits.append(out.sop_logits)
            elif head == "replaced_token":
                logits.append(out.logits[0, :, None])
            elif head in ("classification", "regression"):
                logits.append(out.logits)
            else:
                found_logits = (out.prediction_logits if "prediction_logits" in out else out.logits)[0]
                logits.append(found_logits[:-2] if summary == "last" else found_logits[1:-1])
    return {head: torch.cat(logits) for head, logits in found.items()}


def backward(model, outputs):
    """Compute the gradients of a sum of all outputs, each weighted at random."""
    total = 0.0
    for logits in outputs.values():
        total += (logits * torch.from_numpy(np.random.default_rng(1).normal(size=tuple(logits.shape))).float()).sum()
    model.zero_grad()
    total.backward()


def assert_parity(learner, theirs, directory):
    if learner.encoder.settings.activation == "relu":  # a unit near 0 may be on in one model and off in the other
        learner.double()
        theirs.double()
    ours, expected = run_ours(learner), run_theirs(theirs, learner.parts)
    for head, value in expected.items():
        assert ours[head].shape == value.shape
        assert (ours[head] - value).abs().max() <= 1e-5 * max(1, value.abs().max())
        assert value.std() > 5e-3, "a thousand tolerances"
    backward(learner, ours)
    backward(theirs, expected)
    found = gradients_by_our_names(theirs, directory, learner.parts)
    if "masked_lm" in learner.parts and learner.encoder.head.pools_tokens:  # the pooler starts as a copy of this head
        found = {name: value for name, value in found.items() if not name.startswith("encoder.pooler.")}
    assert_same_gradients(our_gradients(learner), found, slack=1e-6)


@pytest.mark.parametrize(("shape", "head"), CASES)
def test_parity_of_both_directories(shape, head, tmp_path):
    """Theirs is read and compared; what ours gives back to transformers has the weights and outputs of theirs."""
    theirs = scale(theirs_of(shape, head), 6)
    learner = from_theirs(theirs, head, tmp_path / "theirs")
    assert_parity(learner, theirs, tmp_path / "gradients")
    learner.float(), theirs.float()
    labels = ("a", "b", "c") if head in ("classification", "token_classification") else ()
    heads = {name: part.state_dict() for name, part in learner.parts.items()}
    huggingface.write(tmp_path / "ours", learner.encoder, heads, labels)
    back, report = class_of(shape, head).from_pretrained(tmp_path / "ours", output_loading_info=True)
    alone = "masked_lm" not in heads
    lacking = {name for name in report["missing_keys"] if not (alone and name.startswith("predictions."))}
    assert not lacking, lacking
    given = {name: value for name, value in theirs.named_parameters() if value.requires_grad}  # no table of angles
    for name, value in back.named_parameters():
        assert name in report["missing_keys"] or name not in given or torch.equal(value, given[name]), name
    with torch.no_grad():
        returned, expected = (run_theirs(model.eval(), heads) for model in (back, theirs))
    for head, value in expected.items():
        assert (returned[head] - value).abs().max() <= 1e-5 * max(1, value.abs().max())
    again = huggingface.read(tmp_path / "ours")
    assert again.settings == learner.encoder.settings
    assert (again.vocabulary, again.labels) == (300, labels)


@pytest.mark.parametrize("shared", ["attention", "feed_forward"])
@pytest.mark.parametrize("embedding", [None, 16])
def test_partly_shared_layers_are_written_and_read(shared, embedding, tmp_path):
    settings = AlbertSettings(
        layers=3,
        width=48,
        heads=4,
        feed_forward=96,
        positions=128,
        shared=shared,
        embedding=embedding,
        dropout=0.0,
    )
    torch.manual_seed(0)
    encoder = scale(settings.build(300), 6)
    huggingface.write(tmp_path / "ours", encoder, {})
    found = huggingface.read(tmp_path / "ours")
    assert found.settings == settings
    again = settings.build(300)
    again.load_state_dict(found.encoder)
    tokens = collate(samples()).tokens
    ours = encoder.eval()(tokens).last
    assert torch.equal(again.eval()(tokens).last, ours)
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    for sample in samples():  # in transformers every layer has a copy
        out = theirs(
            torch.from_numpy(sample.ids)[None], token_type_ids=torch.from_numpy(sample.segments)[None]
        ).last_hidden_state[0]
        alone = encoder(collate([sample]).tokens).last
        assert (out - alone).abs().max() <= 1e-5 * out.abs().max()
    same = {number: value for number, value in encoder.named_parameters() if f"blocks.1.{shared}" in number}
    assert not same, "the second layer has no sublayer of its own"


SMILES = re.compile(r"\[[^\]]+]|Br?|Cl?|>>|[NOSPFIbcnosp()=#\-+\\/:~@?*$.]|%[0-9]{2}|[0-9]")
REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC",
    "c1ccccc1Br.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "O=C(O)c1ccccc1.CO>>COC(=O)c1ccccc1",
)


@pytest.mark.shared
def test_a_trained_albert_fills_masks_as_in_transformers(shared):
    """Its language is reactions written as SMILES; each token is masked in turn."""
    directory = shared / "checkpoints/albert-rxnmapper"
    model = load_model(directory, allow_pickle=True)
    assert model.encoder.settings.shared == "all"
    head = OBJECTIVES["masked_lm"]().build(BuildContext(model.encoder))
    assert not model.take("masked_lm", head)
    learner = Learner(model.encoder, {"masked_lm": head}).eval()
    theirs = transformers.AlbertForMaskedLM.from_pretrained(directory).eval()
    ids_by_token = {model.tokenizer.token(id): id for id in range(model.tokenizer.size)}
    frame, masked, expected = Frame(model.tokenizer.cls, model.tokenizer.sep), [], []
    for reaction in REACTIONS:
        whole = frame.wrap(np.array([ids_by_token[token] for token in SMILES.findall(reaction)]))
        for position in range(1, len(whole) - 1):
            ids = whole.ids.copy()
            ids[position] = model.tokenizer.mask
            labels = {"masked": whole.ids[position : position + 1]}
            masked.append(
                whole.add(ids=ids, positions={"masked": np.array([position])}, labels=labels).named((len(masked),))
            )
        with torch.no_grad():  # those of one reaction have equal lengths
            logits = theirs(torch.from_numpy(np.stack([sample.ids for sample in masked[len(expected) :]]))).logits
        expected += logits[range(len(logits)), range(1, 1 + len(logits))]
    with torch.no_grad():
        batch = collate(masked)
        ours = learner.parts["masked_lm"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
        right = 0
        for (number,), logits in zip(batch.keys, ours, strict=True):
            assert (logits - expected[number]).abs().max() <= 1e-5 * expected[number].abs().max()
            right += int(logits.argmax()) == int(masked[number].labels["masked"][0])
    assert len(masked) > 100
    assert right > 0.9 * len(masked), "it was trained for this"
