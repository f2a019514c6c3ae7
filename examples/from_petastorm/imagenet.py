"""Images of different sizes in folders by noun: a dataset of compressed images, written by Spark, read for PyTorch."""

import sys
from pathlib import Path

import cv2
import numpy as np
from petastorm import make_reader
from petastorm.codecs import CompressedImageCodec, ScalarCodec
from petastorm.etl.dataset_metadata import get_schema_from_dataset_url, materialize_dataset
from petastorm.pytorch import DataLoader
from petastorm.transform import TransformSpec
from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

ImagenetSchema = Unischema(
    "ImagenetSchema",
    [
        UnischemaField("noun_id", np.str_, (), ScalarCodec(StringType()), False),
        UnischemaField("text", np.str_, (), ScalarCodec(StringType()), False),
        UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("png"), False),
    ],
)
NOUNS = {"n01440764": "tench", "n02099601": "golden retriever", "n04254680": "soccer ball"}


def draw_images(folder, images_per_noun=4):
    """A folder for each noun, as ImageNet has it, with a few JPEG files of noise."""
    rng = np.random.default_rng(0)
    for noun_id in NOUNS:
        (folder / noun_id).mkdir(parents=True)
        for number in range(images_per_noun):
            height, width = rng.integers(20, 60, 2)
            pixels = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
            cv2.imwrite(str(folder / noun_id / f"{noun_id}_{number}.jpeg"), pixels)


def imagenet_directory_to_petastorm_dataset(imagenet_path, output_url, parquet_files_count=3):
    """One row an image file."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    files = sorted(str(path) for path in Path(imagenet_path).rglob("*.jpeg"))

    def to_row(path):
        noun_id = Path(path).parent.name
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        return dict_to_spark_row(ImagenetSchema, {"noun_id": noun_id, "text": NOUNS[noun_id], "image": image})

    with materialize_dataset(spark, output_url, ImagenetSchema):
        rdd = spark.sparkContext.parallelize(files, parquet_files_count).map(to_row)
        spark.createDataFrame(rdd, ImagenetSchema.as_spark_schema()).write.mode("overwrite").parquet(output_url)


def to_network(row):
    """Images of one size, channels first."""
    resized = cv2.resize(row["image"], (32, 32))
    return {"image": np.ascontiguousarray(resized.transpose(2, 0, 1)), "noun_id": row["noun_id"]}


def main(folder):
    """Draw, write, and read in batches of one size."""
    images, dataset_url = Path(folder) / "images", (Path(folder).resolve() / "dataset").as_uri()
    draw_images(images)
    imagenet_directory_to_petastorm_dataset(images, dataset_url)
    assert get_schema_from_dataset_url(dataset_url) == ImagenetSchema
    spec = TransformSpec(to_network, edit_fields=[("image", np.uint8, (3, 32, 32), False)], removed_fields=["text"])
    with make_reader(dataset_url, schema_fields=["noun_id", "image", "text"], transform_spec=spec) as reader:
        nouns = set()
        for batch in DataLoader(reader, batch_size=5):
            print("batch", tuple(batch["image"].shape))
            nouns.update(batch["noun_id"])
    print("nouns", sorted(nouns))


if __name__ == "__main__":
    main(sys.argv[1])
