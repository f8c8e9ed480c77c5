"""The downloads of CIFAR's authors: archives, the files in them, their checksums, and the names of the classes."""

from dataclasses import dataclass

PAGE = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True, eq=False)
class CifarVersion:
    """A set in one form: an archive, or the files that it unpacks to, each with its MD5."""

    set: str
    form: str
    folder: str  # in the archive
    archive: str
    size: int
    md5: str
    files: dict[str, str]  # the one to test is the last

    def __str__(self) -> str:
        return f"{TITLES[self.set]}'s {self.form} version"


@dataclass(frozen=True)
class Labels:
    """One of the labels that every image has: its place in a record or pickle, and its classes."""

    byte: int  # of the record
    key: str  # in the pickle
    text: str  # the names of the classes
    names_text: str  # the file that has them one a line, and below the pickle that has them
    names_pickle: str
    names_key: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.text.split())


TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LABEL_BYTES = {"cifar10": 1, "cifar100": 2}
IMAGES = {"cifar10": (10_000, 10_000), "cifar100": (50_000, 10_000)}  # in each file to train, and to test

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""
FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
LABELS = {  # by set, and whether the coarse ones
    ("cifar10", False): Labels(0, "labels", CIFAR10, "batches.meta.txt", "batches.meta", "label_names"),
    ("cifar100", False): Labels(1, "fine_labels", FINE, "fine_label_names.txt", "meta", "fine_label_names"),
    ("cifar100", True): Labels(0, "coarse_labels", COARSE, "coarse_label_names.txt", "meta", "coarse_label_names"),
}


def by_name(sums: str) -> dict[str, str]:
    """Files and their checksums, of lines as md5sum writes them."""
    return {name: md5 for md5, name in map(str.split, sums.splitlines())}


VERSIONS = (
    CifarVersion(
        "cifar10",
        "binary",
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c32a1d4ab5d03f1284b67883e8d87530",
        by_name("""\
5dd7e06a14cb22eb9f671a540d1b7c25  data_batch_1.bin
5ea93a67294ea407fff1d09f752e9692  data_batch_2.bin
942cd6a4bcdd0dd3c604fbe906cb4421  data_batch_3.bin
ae636b3ba5c66a11e91e8cb52e771fcb  data_batch_4.bin
53f37980c15c3d472c316c40844f3f0d  data_batch_5.bin
803d5f7f4d78ea53de84dbe85f74fb6d  test_batch.bin
"""),
    ),
    CifarVersion(
        "cifar10",
        "Python",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        170_498_071,
        "c58f30108f718f92721af3b95e74349a",
        by_name("""\
c99cafc152244af753f735de768cd75f  data_batch_1
d4bba439e000b95fd0a9bffe97cbabec  data_batch_2
54ebc095f3ab1f0389bbae665268c751  data_batch_3
634d18415352ddfa80567beed471001a  data_batch_4
482c414d41f54cd18b22e5b47cb7c3cb  data_batch_5
40351d587109b95175f43aff81a1287e  test_batch
"""),
    ),
    CifarVersion(
        "cifar100",
        "binary",
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        168_513_733,
        "03b5dce01913d631647c71ecec9e9cb8",
        by_name("""\
6172c7755cfe09b2fe270c85cebc1b15  train.bin
4499cfba6c016c1be1438163640a0898  test.bin
"""),
    ),
    CifarVersion(
        "cifar100",
        "Python",
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        169_001_437,
        "eb9058c3a382ffc7106e4002c42a8d85",
        by_name("""\
16019d7e3df5f24257cddd939b257f8d  train
f0ef6b0ae62326f3e7ffdfab6717acfc  test
"""),
    ),
)
