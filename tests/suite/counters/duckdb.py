"""Sums the events of an archive with DuckDB, by counter and hour or by labels, as JSON. Arguments: `hours` or `labels`, the
pattern of its objects."""
import json
import sys

import duckdb

ROWS = {
    "hours": """
        SELECT counter, epoch_ms(date_trunc('hour', time)), sum(delta), count(delta), count(*) - count(delta)
        FROM read_parquet(?, union_by_name = true) GROUP BY ALL ORDER BY ALL
    """,
    "labels": """
        SELECT concat(source, '/', event_item_key), 0, sum(delta), count(delta), count(*) - count(delta)
        FROM read_parquet(?, union_by_name = true) GROUP BY ALL ORDER BY ALL
    """,
}
rows = duckdb.execute(ROWS[sys.argv[1]], [sys.argv[2]]).fetchall()
print(json.dumps([[name, hour_ms, int(total), adds, clears] for name, hour_ms, total, adds, clears in rows]))
