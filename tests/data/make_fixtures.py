#!/usr/bin/env python3
"""Writes the Parquet files of this folder: the rows of rows.tsv as other programs store them.

Needs pyarrow, pandas, duckdb, fastparquet and pyspark (with Java). Run it in this folder; tests/unit/test_data_files.c
reads every file and compares it with rows.tsv. The first two lines of rows.tsv are those that the talk prints.
SPDX-License-Identifier: MIT
"""
import datetime
import os
import shutil
import sys

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 48
FIRST = [
    ("0", "5 110 0 16 0 1 0 14 7 1 0 306 0",
     "62770d79 e21f5d58 afea442f 945c7fcf 38b02748 6fcd6dcb 3580aa21 28808903 46dedfa6 2e027dc1 0c7c4231 95981d1f "
     "00c5ffb7 be4ee537 8a0b74cc 4cdc3efa d20856aa b8170bba 9512c20b c38e2f28 14f65a5d 25b1b089 d7c1fc0b 7caf609c "
     "30436bfc ed10571d"),
    ("0", "32 3 5 0 1 0 0 61 5 0 1 3157 5",
     "e5f3fd8d a0aaffa6 6faa15d5 da8a3421 3cd69f23 6fcd6dcb ab16ed81 43426c29 1df5e154 7de9c0a9 6652dc64 99eb4e27 "
     "00c5ffb7 be4ee537 f3bbfe99 4cdc3efa d20856aa a1eb1511 9512c20b febfd863 a3323ca1 c8e1ee56 1752e9e8 75350c8a "
     "991321ea b757e957"),
]


def lines():
    """Fields of each row; an empty one is missing."""
    out = [[label] + dense.split() + sparse.split() for label, dense, sparse in FIRST]
    random = np.random.default_rng(12)
    for _ in range(ROWS - len(out)):
        dense = [str(int(v)) for v in np.floor(np.exp(random.normal(1.5, 1.2, 13))) - 1]
        sparse = [f"{int(random.integers(1, 4 if i % 3 else 1 << 32)) * (2654435761 if i % 3 else 1) % (1 << 32):08x}"
                  for i in range(26)]
        missing = random.random(39) < 0.12
        fields = ["" if gone else word for gone, word in zip(missing, dense + sparse)]
        out.append([str(int(random.random() < 0.25))] + fields)
    return out


def columns(rows, filled):
    """Arrays by the names that the talk's conversion uses; missing is None, or 0 and -1."""
    out = {"labels": [float(r[0]) for r in rows]}
    for i in range(13):
        out[f"DENSE_{i}"] = [float(r[1 + i]) if r[1 + i] else (0.0 if filled else None) for r in rows]
    for i in range(26):
        out[f"SPARSE_{i}"] = [int(r[14 + i], 16) if r[14 + i] else (-1 if filled else None) for r in rows]
    return out


def table(rows, filled):
    c = columns(rows, filled)
    types = {"labels": pa.float64()}
    return pa.table({n: pa.array(v, types.get(n) or (pa.float32() if n[0] == "D" else pa.int64()))
                     for n, v in c.items()})


def main():
    rows = lines()
    with open("rows.tsv", "w") as f:
        f.writelines("\t".join(r) + "\n" for r in rows)
    nulls, filled = table(rows, False), table(rows, True)
    filled.to_pandas().to_parquet("pandas.parquet")
    pq.write_table(nulls, "arrow_v2_zstd.parquet", data_page_version="2.0", compression="zstd", row_group_size=20,
                   write_statistics=False)
    pq.write_table(nulls, "arrow_lz4_plain.parquet", compression="lz4", use_dictionary=False, write_statistics=False)
    pq.write_table(nulls, "arrow_gzip_delta.parquet", compression="gzip", use_dictionary=False, write_statistics=False,
                   column_encoding={n: "DELTA_BINARY_PACKED" if n[0] == "S" else "BYTE_STREAM_SPLIT"
                                    for n in nulls.column_names}, write_page_checksum=True)
    pq.write_table(nulls, "arrow_small_pages.parquet", compression="none", data_page_size=64, write_batch_size=8,
                   write_statistics=False, write_page_checksum=True)
    fields = {"label": pa.array([r[0] == "1" for r in rows])}
    for i in range(13):
        kind = [pa.int32(), pa.int64(), pa.float64(), pa.int16()][i % 4]
        values = [None if not r[1 + i] else int(r[1 + i]) for r in rows]
        fields[f"DENSE_{i}"] = pa.array(values, kind)
    for i in range(26):
        values = [r[14 + i] if r[14 + i] or n % 2 else None for n, r in enumerate(rows)]
        fields[f"SPARSE_{i}"] = pa.array(values) if i % 2 else pa.array([int(v, 16) if v else None for v in values],
                                                                       pa.uint32())
    pq.write_table(pa.table(fields), "arrow_other_types.parquet", write_statistics=False)
    duckdb.sql("SET threads = 1")
    duckdb.register("rows", nulls)
    duckdb.sql("COPY rows TO 'duckdb.parquet' (FORMAT parquet)")
    duckdb.sql("COPY rows TO 'duckdb_v2_zstd.parquet' (FORMAT parquet, CODEC 'zstd', PARQUET_VERSION 'v2')")
    import fastparquet
    fastparquet.write("fastparquet.parquet", filled.to_pandas(), compression="GZIP", stats=False)
    if "--no-spark" not in sys.argv:
        spark(rows)


def spark(rows):
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType, TimestampType
    session = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
               .config("spark.sql.parquet.outputTimestampType", "INT96")
               .config("spark.sql.parquet.writeLegacyFormat", "true").getOrCreate())
    c = columns(rows, False)
    when = datetime.datetime(2024, 5, 1)
    kind = {"l": DoubleType(), "D": FloatType(), "S": LongType()}
    schema = StructType([StructField("seen", TimestampType())] + [StructField(n, kind[n[0]]) for n in c])
    data = session.createDataFrame([(when, *values) for values in zip(*c.values())], schema).coalesce(1)
    for name, codec in (("spark", "snappy"), ("spark_lz4", "lz4"), ("spark_lz4_raw", "lz4_raw")):
        data.write.mode("overwrite").option("compression", codec).parquet("spark.out")
        part = [f for f in os.listdir("spark.out") if f.endswith(".parquet")][0]
        shutil.copy(f"spark.out/{part}", f"{name}.parquet")
    shutil.rmtree("spark.out")
    session.stop()


main()
