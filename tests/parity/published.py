"""Tiny random models as transformers and sentence-transformers save them, and comparisons of what both compute."""

import json
import shutil
import warnings

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from unmask.data.batches.frame import Frame, adopt_framing
from unmask.data.tokenizers.load import load_tokenizer
from unmask.families.checkpoints.huggingface import read_settings
from unmask.inference.load import load
from unmask.support.errors import UserError

WORDS = "the cat sat on a mat ##s ##ed , . ! é caf ##é A The Cat 你 好 e [ ] mask < > ##a ##t dog ate tr ##x".split()  # noqa: SIM905
PIECES = [
    (piece, -1.0 - 0.1 * number)
    for number, piece in enumerate("▁ ▁the ▁cat s . , ▁The e é c a t h ▁a ! ▁mat T C 你 好 [ ] < > m k".split())  # noqa: SIM905
]
TEXTS = [
    "The cats sat.",
    "Café é, the   mat!",
    "the [MASK] cat <mask> a",
    "你好 the cat\nsat on a mat",
    "Trx ate the Cats",
]
SIZES = {"vocab_size": 64, "max_position_embeddings": 40, "initializer_range": 0.5}
BERT = SIZES | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def wordpiece(*special):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return {word: id for id, word in enumerate([*(special or names), *WORDS])}


def byte_vocabulary():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "c"), ("Ġc", "a"), ("Ġca", "t")]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(pair) for pair in merges), "<mask>"]
    return {token: id for id, token in enumerate(tokens)}, merges


def general_wordpiece():
    """Return a tokenizer of the general class, cased, whose tokenizer.json alone says how texts are read."""
    library = Tokenizer(models.WordPiece(wordpiece(), unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {f"{role.lower()}_token": f"[{role}]" for role in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names)


def unigram(*names, kind, **options):
    return kind(vocab=[*((name, 0.0) for name in names), *PIECES], **options)


FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MAKE = {
    "bert": (
        lambda: transformers.BertTokenizer(vocab=wordpiece()),
        lambda: transformers.BertConfig(**BERT),
    ),
    "bert, cased": (
        lambda: transformers.BertTokenizer(vocab=wordpiece(), do_lower_case=False),
        lambda: transformers.BertConfig(**BERT),
    ),
    "bert, general": (general_wordpiece, lambda: transformers.BertConfig(**BERT)),
    "distilbert": (
        lambda: transformers.DistilBertTokenizer(vocab=wordpiece()),
        lambda: transformers.DistilBertConfig(**SIZES, dim=16, n_layers=2, n_heads=2, hidden_dim=24),
    ),
    "electra": (
        lambda: transformers.BertTokenizer(vocab=wordpiece()),
        lambda: transformers.ElectraConfig(**BERT, embedding_size=8),
    ),
    "roberta": (
        lambda: transformers.RobertaTokenizer(vocab=byte_vocabulary()[0], merges=byte_vocabulary()[1]),
        lambda: transformers.RobertaConfig(**BERT | {"vocab_size": 266}, type_vocab_size=1),
    ),
    "mpnet": (
        lambda: transformers.MPNetTokenizer(vocab=wordpiece("<s>", "<pad>", "</s>", "[UNK]", "<mask>")),
        lambda: transformers.MPNetConfig(**BERT),
    ),
    "xlm-roberta": (
        lambda: unigram(*FAIRSEQ, kind=transformers.XLMRobertaTokenizer),
        lambda: transformers.XLMRobertaConfig(**BERT, type_vocab_size=1),
    ),
    "albert": (
        lambda: unigram("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", kind=transformers.AlbertTokenizer),
        lambda: transformers.AlbertConfig(**BERT, embedding_size=8),
    ),
    "deberta-v2": (
        lambda: unigram("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", kind=transformers.DebertaV2Tokenizer),
        lambda: transformers.DebertaV2Config(
            **BERT,
            type_vocab_size=0,
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            share_att_key=True,
            max_relative_positions=20,
            position_buckets=8,
            norm_rel_ebd="layer_norm",
        ),
    ),
    "xlnet": (
        lambda: unigram(
            "<unk>",
            "<s>",
            "</s>",
            "<cls>",
            "<sep>",
            "<pad>",
            "<mask>",
            "<eop>",
            "<eod>",
            kind=transformers.XLNetTokenizer,
        ),
        lambda: transformers.XLNetConfig(
            vocab_size=64, d_model=16, n_layer=2, n_head=2, d_inner=24, initializer_range=0.5, mem_len=None
        ),
    ),
    "modernbert": (
        general_wordpiece,
        lambda: transformers.ModernBertConfig(**BERT, pad_token_id=0, local_attention=6, global_attn_every_n_layers=2),
    ),
    "nomic_bert": (
        lambda: transformers.BertTokenizer(vocab=wordpiece()),
        lambda: transformers.NomicBertConfig(**BERT),
    ),
}
"""The tokenizer and the configuration of each model, by name."""


def write(name, directory, model=transformers.AutoModel, **settings):
    """Write a random model with its tokenizer as transformers saves them."""
    make, configure = MAKE[name]
    torch.manual_seed(0)
    config = configure()
    for key, value in settings.items():
        setattr(config, key, value)
    made = model.from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    made.save_pretrained(directory)
    make().save_pretrained(directory)
    return directory


def change(directory, name, **settings):
    """Change settings of a JSON file; `...` removes one."""
    path = directory / name
    content = (json.loads(path.read_text("utf8")) if path.exists() else {}) | settings
    content = {key: value for key, value in content.items() if value is not ...}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf8")


def quietly(call):
    """Return the result of a call of another library without its warnings, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return error


def copied(directory, name, settings, to):
    """Return a copy of a directory in which settings of a JSON file differ."""
    shutil.copytree(directory, to)
    change(to, name, **settings)
    return to


def inputs():
    """Return each text, and each as the first of a pair."""
    return [(text,) for text in TEXTS] + [(text, TEXTS[0]) for text in TEXTS]


def ids_of_transformers(directory):
    """Return the ids and the segment ids of all inputs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    encoded = [tokenizer(*texts) for texts in inputs()]
    return [(one["input_ids"], one.get("token_type_ids", [0] * len(one["input_ids"]))) for one in encoded]


def framed(tokenizer, texts):
    return Frame.of(tokenizer).wrap(*(tokenizer.encode(text) for text in texts)).named((0, 0))


def ids_of_unmask(directory):
    """Return the same of unmask."""
    tokenizer, settings = load_tokenizer(directory), read_settings(directory)
    tokenizer.summary = settings.summary
    adopt_framing(tokenizer, directory)
    samples = [framed(tokenizer, texts) for texts in inputs()]
    return [(sample.ids.tolist(), sample.segments.tolist()) for sample in samples]


def outputs_of_transformers(directory, model=transformers.AutoModel, name="last_hidden_state"):
    """Return the ids and the outputs of all inputs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    made = model.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    results = []
    for texts in inputs():
        encoded = tokenizer(*texts, return_tensors="pt")
        with torch.no_grad():
            results.append((encoded["input_ids"][0].tolist(), getattr(made(**encoded), name)[0].numpy()))
    return results


def outputs_of_unmask(directory, head=None):
    """Return the same of unmask: logits of a head, or the last layer."""
    predictor = load(directory, device="cpu")
    results = []
    for texts in inputs():
        sample = framed(predictor.model.tokenizer, texts)
        if head is None:
            ((_, rows),) = predictor.backend.layers([sample], [predictor.model.encoder.num_layers])
            results.append((sample.ids.tolist(), rows[:, 0]))
        else:
            results.append((sample.ids.tolist(), predictor.backend.logits(head, [sample])[0][0]))
    return results


def verdict(theirs, ours):
    """Return "equal" or "refused"; "theirs" if the other library does not load the directory.

    Raises:
        AssertionError: the results differ.
    """
    if isinstance(theirs, Exception):
        return "theirs"
    if isinstance(ours, UserError):
        return "refused"
    if isinstance(ours, Exception):
        raise ours
    for number, ((ids, rows), (own, values)) in enumerate(zip(theirs, ours, strict=True)):
        assert ids == own, f"input {number}: ids {ids} of the other library, {own} of unmask"
        assert np.shape(rows) == np.shape(values), f"input {number}"
        difference = np.abs(np.array(rows) - np.array(values)).max()
        assert difference < 2e-4, f"input {number} differs by {difference}"
    return "equal"
