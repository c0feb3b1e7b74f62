"""FashionMNIST: test images as out-of-distribution inputs for networks trained on digits, and images to train on."""

from dataclasses import replace
from typing import Final

from selbo.checks import one_of
from selbo_lab.data import mnist, store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.idx import read_images, read_labels
from selbo_lab.data.store import Source

FASHION_TEST_SIZE: Final = 10_000
FASHION_TRAIN_SIZE: Final = 60_000

FASHION_CLASSES: Final = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

# The packed files have the published MD5 sums bef4ecab… and bb300cfd….
_FILES: Final = mnist.idx_files(
    "t10k",
    FASHION_TEST_SIZE,
    images=(
        4_422_102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    labels=(
        5_148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

FASHION: Final = Source(
    name="fashion",
    files=_FILES,
    downloads=mnist.build_downloads(_FILES, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
    title="FashionMNIST, articles of clothing, test part",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT (Zalando SE)",
)

# The packed files have these MD5 sums on its homepage; packages of Debian hold the same content, packed anew.
_TRAIN_FILES: Final = tuple(
    replace(raw, digest=f"md5:{digest}")
    for raw, digest in zip(
        mnist.idx_files(
            "train",
            FASHION_TRAIN_SIZE,
            images=(26_421_880, "", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
            labels=(29_515, "", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        ),
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
        strict=True,
    )
)

FASHION_TRAIN: Final = replace(
    FASHION,
    name="fashion-train",
    files=_TRAIN_FILES,
    downloads=mnist.build_downloads(_TRAIN_FILES, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
    title="FashionMNIST, articles of clothing, training part",
)


def fashion_train(part: str) -> LabelledData:
    """FashionMNIST, to train on.

    Args:
        part: "train" or "test".

    Returns:
        Images (60 000 or 10 000, 1, 28, 28) of bytes, in ten classes.
    """
    one_of("part", part, ("train", "test"))
    if part == "test":
        return fashion(part)
    return replace(
        fashion("test"),
        name="fashion train",
        inputs=read_images(store.locate(FASHION_TRAIN, mnist.images_name("train")), count=FASHION_TRAIN_SIZE),
        labels=read_labels(
            store.locate(FASHION_TRAIN, mnist.labels_name("train")),
            count=FASHION_TRAIN_SIZE,
            num_classes=len(FASHION_CLASSES),
        ),
    )


def fashion(part: str = "test") -> LabelledData:
    """FashionMNIST's test part, normalised as MNIST is, because it is shown to networks trained on MNIST.

    Args:
        part: "test" only.

    Returns:
        Images (10 000, 1, 28, 28) of bytes, in ten classes.
    """
    one_of("part", part, ("test",))
    return LabelledData(
        name="fashion test",
        inputs=read_images(store.locate(FASHION, mnist.images_name("t10k")), count=FASHION_TEST_SIZE),
        labels=read_labels(
            store.locate(FASHION, mnist.labels_name("t10k")), count=FASHION_TEST_SIZE, num_classes=len(FASHION_CLASSES)
        ),
        class_names=FASHION_CLASSES,
        source="FashionMNIST, original idx files",
        licence=FASHION.licence,
        normalisation=mnist.MNIST_NORMALISATION,
    )
