"""Sums the events of an archive with DuckDB, by counter and hour, as JSON. Argument: the pattern of its objects."""
import json
import sys

import duckdb

ROWS = """
    SELECT counter, epoch_ms(date_trunc('hour', time)), sum(delta), count(delta), count(*) - count(delta)
    FROM read_parquet(?) GROUP BY ALL ORDER BY ALL
"""
rows = duckdb.execute(ROWS, [sys.argv[1]]).fetchall()
print(json.dumps([[counter, hour_ms, int(total), adds, clears] for counter, hour_ms, total, adds, clears in rows]))
