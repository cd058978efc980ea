"""Features of a frozen backbone: what images become, and how often they are computed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers import features
from manyseed.jobs.datasets import resolve
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import DatasetRows, MachineError, Run
from manyseed.jobs.trainer import Trainer
from tests.jobs.classifiers.backbone import Tiny, tiny, write_weights
from tests.jobs.classifiers.examples import colour, image, info

CPU = torch.device("cpu")
DIGITS = resolve("sklearn:digits")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Return an empty folder of data for each test, and forget what others read."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(features, "ROWS_OF_A_PART", 50)
    features._OPEN.clear()
    features._model.cache_clear()
    return tmp_path / "data"


@pytest.fixture
def computed(monkeypatch):
    """Return the list of row counts that went through the backbone."""
    counts, compute = [], features._compute
    monkeypatch.setattr(features, "_compute", lambda *a: counts.append(len(a[-1])) or compute(*a))
    return counts


def with_dataset(data, perturbed=False):
    """Return a training set whose rows are the first and the last of a dataset."""
    X = np.concatenate([data.X, data.X_test])
    n = len(data.y)
    train = None if perturbed else np.arange(n)
    return replace(data, in_dataset=DatasetRows("d", X, train, np.arange(n, len(X))))


def test_images_are_scaled_and_normalised_as_torchvision_s_own_transform_does():
    functional = torchvision("torchvision.transforms.v2.functional")
    images = torch.rand(3, 9, 7, 3, generator=torch.Generator().manual_seed(1))
    for name in ("swin_t", "vit_b_16"):
        backbone = replace(tiny, size=224) if name == "swin_t" else features.BACKBONES[name]
        published = torchvision("torchvision.models").get_model_weights(name).DEFAULT.transforms()
        assert published.crop_size == [backbone.size]
        assert published.interpolation.value == backbone.interpolation
        scaled = functional.resize(
            images.permute(0, 3, 1, 2), [224, 224], published.interpolation, antialias=True
        )
        expected = functional.normalize(scaled, published.mean, published.std)
        torch.testing.assert_close(features.as_expected(backbone, images), expected)


def test_grey_becomes_three_equal_colours():
    grey = torch.rand(2, 8, 8, 1, generator=torch.Generator().manual_seed(1))
    given = features.as_expected(tiny, grey)
    torch.testing.assert_close(given, features.as_expected(tiny, grey.expand(-1, -1, -1, 3)))
    assert given.shape == (2, 3, 16, 16)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_features_are_what_goes_into_the_last_layer(dtype):
    data, _ = colour()
    X, X_test = (np.clip(rows, 0, 200).astype(dtype) for rows in (data.X, data.X_test))
    n = len(X)
    in_dataset = DatasetRows(
        "d", np.concatenate([X, X_test]), np.arange(n), np.arange(n, n + len(X_test))
    )
    digest = features.keep("swin_t")
    train, test = features.features("swin_t", digest, replace(data, in_dataset=in_dataset), CPU)
    model = Tiny()
    model.load_state_dict(torch.load(features.find("swin_t", digest)))
    white = 255 if dtype is np.uint8 else 200
    images = torch.tensor(X_test, dtype=torch.float32).reshape(-1, *data.image) / white
    with torch.no_grad():
        logits = model(features.as_expected(tiny, images)).numpy()
        ours = model.head(torch.tensor(test)).numpy()
    np.testing.assert_allclose(ours, logits, rtol=1e-4, atol=1e-5)
    assert train.shape == (n, 128)
    assert train.dtype == test.dtype == np.float32


def test_swin_takes_its_state_dict(tmp_path, monkeypatch):
    real = features.Backbone(torchvision("torchvision.models").swin_t, "head", 224, "bicubic")
    monkeypatch.setitem(features.BACKBONES, "swin_t", real)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = real.build()
    torch.save(model.state_dict(), tmp_path / "own.pth")
    digest = features.keep("swin_t", str(tmp_path / "own.pth"))
    data, _ = image()
    two = replace(data, X=data.X[:2], X_test=data.X_test[:1])
    found, _ = features.features("swin_t", digest, two, CPU)
    images = torch.tensor(two.X / two.X.max(), dtype=torch.float32).reshape(-1, *data.image)
    with torch.no_grad():
        logits = model.eval()(features.as_expected(real, images))
        torch.testing.assert_close(model.head(torch.tensor(found)), logits, rtol=1e-3, atol=1e-4)


def as_hugging_face_names_it(state):
    """Return torchvision's state dict as `transformers` 4 saves a SwinForImageClassification."""
    found = {}
    for name, values in state.items():
        match name.split("."):
            case ["features", "0", "0", kind]:
                found[f"swin.embeddings.patch_embeddings.projection.{kind}"] = values
            case ["features", "0", "2", kind]:
                found[f"swin.embeddings.norm.{kind}"] = values
            case ["features", place, "reduction" | "norm" as part, *kind]:
                stage = int(place) // 2 - 1
                found[".".join([f"swin.encoder.layers.{stage}.downsample.{part}", *kind])] = values
            case ["features", place, block, *rest]:
                of = f"swin.encoder.layers.{int(place) // 2}.blocks.{block}"
                match rest:
                    case ["norm1" | "norm2" as norm, kind]:
                        side = "before" if norm == "norm1" else "after"
                        found[f"{of}.layernorm_{side}.{kind}"] = values
                    case ["attn", "qkv", kind]:
                        for part, third in zip(
                            ("query", "key", "value"), values.chunk(3), strict=True
                        ):
                            found[f"{of}.attention.self.{part}.{kind}"] = third
                    case ["attn", "proj", kind]:
                        found[f"{of}.attention.output.dense.{kind}"] = values
                    case ["attn", "relative_position_bias_table"]:
                        found[f"{of}.attention.self.relative_position_bias_table"] = values
                    case ["mlp", "0", kind]:
                        found[f"{of}.intermediate.dense.{kind}"] = values
                    case ["mlp", "3", kind]:
                        found[f"{of}.output.dense.{kind}"] = values
            case ["norm", kind]:
                found[f"swin.layernorm.{kind}"] = values
            case ["head", kind]:
                found[f"classifier.{kind}"] = values
    return found


def safetensors(state):
    """Return a file of safetensors: the header's size in 8 bytes, the header, the numbers."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in state.items():
        raw = values.contiguous().numpy().tobytes()
        places = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": places}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_swin_of_hugging_faces_cache_is_torchvision_s(tmp_path, monkeypatch, file):
    """Only of the revision main, never downloaded; and of a file, wherever it is."""
    build = partial(
        torchvision("torchvision.models.swin_transformer").SwinTransformer,
        [4, 4], 12, [1, 2], [2, 4], [7, 7], num_classes=5,
    )  # fmt: skip
    real = features.Backbone(build, "head", 56, "bicubic", width=24)
    monkeypatch.setitem(features.BACKBONES, "swin_t", real)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
    state = model.state_dict()
    held = as_hugging_face_names_it(state)
    index = sum("relative_position_index" in name for name in state)
    assert len(held) == len(state) - index + 2 * sum(".qkv." in name for name in state)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    with pytest.raises(Refused, match=r"no model.safetensors of it below .*: hf download lab/swin"):
        features.keep("swin_t", "hf:lab/swin")
    folder = tmp_path / "hf" / "hub" / "models--lab--swin"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    for revision, own in (("abc", held), ("aaa", {n: v + 1 for n, v in held.items()})):
        (folder / "snapshots" / revision).mkdir(parents=True)
        path = folder / "snapshots" / revision / file
        if file.endswith("bin"):
            torch.save(own, path)
        else:
            path.write_bytes(safetensors(own))
    digest = features.keep("swin_t", "hf:lab/swin")
    assert digest == features.keep("swin_t", str(folder / "snapshots" / "abc" / file))
    data, _ = image()
    two = replace(data, X=data.X[:2], X_test=data.X_test[:1])
    found, _ = features.features("swin_t", digest, two, CPU)
    images = torch.tensor(two.X / two.X.max(), dtype=torch.float32).reshape(-1, *data.image)
    with torch.no_grad():
        logits = model.eval()(features.as_expected(real, images))
        torch.testing.assert_close(model.head(torch.tensor(found)), logits, rtol=1e-3, atol=1e-4)
    loaded = features._model("swin_t", digest, CPU).state_dict()
    assert all(torch.equal(values, state[name]) for name, values in loaded.items())
    path = tmp_path / "bad.safetensors"
    path.write_bytes(safetensors(held).replace(b'"F32"', b'"F99"', 1))
    with pytest.raises(MachineError, match="is of the type F99"):
        features._model("swin_t", features.keep("swin_t", str(path)), CPU)


def test_vit_without_its_head_gives_features():
    backbone = features.BACKBONES["vit_b_16"]
    with torch.device("meta"):  # shapes alone: nothing is computed
        model = backbone.build()
        assert getattr(model, backbone.head)(torch.empty(1, 768)).shape == (1, 1000)
        setattr(model, backbone.head, torch.nn.Identity())
        assert model.eval()(torch.empty(1, 3, 224, 224)).shape == (1, 768)


def make_cell(**values):
    model = classifiers.resolve("vit-transfer", {"epochs": 1}, DIGITS)
    return resolve_cell(7, DIGITS, model, **values).cell


def test_a_dataset_goes_through_the_backbone_once(computed):
    runs = [Run(make_cell(train_fraction=f), r, 0) for f in (0.5, 1.0) for r in (0, 1)]
    results = [Trainer().train(run) for run in runs]
    assert sum(computed) == DIGITS.n_samples
    features._OPEN.clear()  # as another process: from the disk
    again = Trainer().train(runs[-1])
    assert sum(computed) == DIGITS.n_samples
    np.testing.assert_array_equal(again.scores, results[-1].scores)


def test_perturbed_images_are_computed_and_test_images_never_are(computed):
    trainer, plain = Trainer(), make_cell(train_fraction=100)
    trainer.train(Run(plain, 0, 0))
    del computed[:]
    noisy = make_cell(train_fraction=100, perturb_continuous="relative:0.5")
    result = trainer.train(Run(noisy, 0, 0))
    assert computed == [100]
    assert not np.array_equal(result.scores, trainer.train(Run(plain, 0, 0)).scores)


def test_features_are_the_same_looked_up_or_computed():
    data, _ = image()
    digest = features.keep("swin_t")
    known, _ = features.features("swin_t", digest, with_dataset(data), CPU)
    moved, _ = features.features("swin_t", digest, with_dataset(data, perturbed=True), CPU)
    np.testing.assert_allclose(known, moved, rtol=1e-5, atol=1e-6)


def test_what_was_interrupted_is_not_computed_again(computed, monkeypatch, home):
    data, _ = image()  # 220 rows: five parts
    digest, count = features.keep("swin_t"), features._compute

    def dies(*arguments):
        if len(computed) == 3:
            raise KeyboardInterrupt
        return count(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(features, "_compute", dies)
        with pytest.raises(KeyboardInterrupt):
            features.features("swin_t", digest, with_dataset(data), CPU)
    found, _ = features.features("swin_t", digest, with_dataset(data), CPU)
    assert len(computed) == 5
    assert sum(computed) == 220
    computed_now, _ = features.features("swin_t", digest, with_dataset(data, perturbed=True), CPU)
    np.testing.assert_allclose(found, computed_now, rtol=1e-5, atol=1e-6)
    assert [path.name.endswith("-1") for path in (home / "features").iterdir()] == [True]


def test_processes_at_the_same_time_keep_one_copy(home):
    data, _ = image()
    digest = features.keep("swin_t")
    in_dataset = with_dataset(data).in_dataset
    compute = lambda X: features._compute("swin_t", digest, CPU, data.image, 255.0, X)  # noqa: E731
    where = home / "features" / "d"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: features._make(where, in_dataset.X, compute), range(4)))
    np.testing.assert_allclose(
        features._read(where, 220), compute(in_dataset.X), rtol=1e-5, atol=1e-6
    )
    assert [path.name for path in where.parent.iterdir()] == ["d"]


def test_damaged_features_are_refused(home):
    data, _ = image()
    digest = features.keep("swin_t")
    features.features("swin_t", digest, with_dataset(data), CPU)
    (about,) = home.glob("features/*/about.json")
    content = about.read_bytes()
    for text in (b'{"sha256": "0"}', b"[1]", b"{}", b"caf\xe9", b"[" * 90_000, None, content):
        features._OPEN.clear()
        about.unlink()
        if text == content:
            about.with_name("features.npy").write_bytes(b"x")
        if text is not None:
            about.write_bytes(text)
        with pytest.raises(MachineError, match="is damaged: remove it"):
            features.features("swin_t", digest, with_dataset(data), CPU)
        about.touch()


def test_damaged_parts_of_features_are_refused(home):
    where = home / "features" / "d"
    parts = [where.with_name("d.parts") / f"{start:09d}.npy" for start in (0, 128)]
    parts[0].parent.mkdir(parents=True)
    for content in (b"", b"x"):
        for part in parts:
            part.write_bytes(content)
        with pytest.raises(MachineError, match=r"d\.parts is damaged: remove it"):
            features._make(where, np.zeros((220, 4)), lambda X: X)


def test_the_digest_of_the_weights_is_part_of_the_identity(tmp_path):
    one = classifiers.resolve("vit-transfer", {}, info(image()[0]))
    write_weights(tmp_path / "other.pth", seed=1)
    other = classifiers.resolve(
        "vit-transfer", {"weights": str(tmp_path / "other.pth")}, info(image()[0])
    )
    assert {**one.canonical, "weights": ""} == {
        "name": "vit-transfer",
        "version": 1,
        "epochs": 5,
        "backbone": "swin_t",
        "weights": "",
        "optimizer": "adam",
        "schedule": "constant",
    }
    assert len(one.canonical["weights"]) == 64
    assert one.canonical["weights"] != other.canonical["weights"]


def test_workers_find_the_planned_weights_whatever_becomes_of_the_file(tmp_path):
    state = write_weights(tmp_path / "own.pth", seed=2)
    digest = features.keep("swin_t", str(tmp_path / "own.pth"))
    write_weights(tmp_path / "own.pth", seed=3)
    found = torch.load(features.find("swin_t", digest))
    assert torch.equal(found["head.weight"], state["head.weight"])


def test_weights_that_are_gone_or_changed_are_the_machine_s_fault(home):
    with pytest.raises(MachineError, match=r"planned with .* are not in"):
        features.find("swin_t", "0" * 64)
    digest = features.keep("swin_t")
    (home / "weights" / f"{digest}.pth").write_bytes(b"changed")
    assert "hub" in str(features.find("swin_t", digest))  # torch hub still has the same file


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"conv.weight": torch.zeros(1)}, tmp_path / "other.pth")
    digest = features.keep("swin_t", str(tmp_path / "other.pth"))
    with pytest.raises(MachineError, match="holds no weights of swin_t"):
        features.features("swin_t", digest, image()[0], CPU)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "swin"}, "backbone = 'swin': unknown; there are swin_t, vit_b_16"),
        (
            {"weights": "/no/such.pth"},
            r"weights = ./no/such.pth.: there is no such file: download https",
        ),
        ({"backbone": "vit_b_16"}, r"hub/checkpoints/vit_b_16-c867db91.pth: download"),
        ({"weights": 3}, "weights = 3: must be the path of a file, or"),
    ],
)
def test_missing_weights_are_refused_when_planning(options, message):
    with pytest.raises(ValueError, match=message):
        classifiers.resolve("vit-transfer", options, info(image()[0]))


def test_two_channels_are_refused():
    with pytest.raises(ValueError, match="1 or 3 channels, and these have 2"):
        classifiers.resolve("vit-transfer", {}, info(image((8, 8, 2))[0]))
