"""FashionMNIST's test images, out-of-distribution inputs for networks trained on digits."""

from typing import Final

from selbo_lab import checks
from selbo_lab.data import mnist, store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.idx import read_images, read_labels
from selbo_lab.data.store import Source

FASHION_TEST_SIZE: Final = 10_000

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
    downloads=mnist.downloads_of(_FILES, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
    title="FashionMNIST, articles of clothing, test part",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT (Zalando SE)",
)


def fashion(part: str = "test") -> LabelledData:
    """FashionMNIST's test part, normalised as MNIST is, because it is shown to networks trained on MNIST.

    Args:
        part: "test" only.

    Returns:
        Images (10 000, 1, 28, 28) of bytes, in ten classes.
    """
    checks.one_of("part", part, ("test",))
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
