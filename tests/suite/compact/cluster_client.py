"""The Cluster client of redis-py drives the module as it is: it finds the node of each key. Arguments: a port of the Cluster, protocol."""
import sys
import redis
from redis.cluster import RedisCluster

client = RedisCluster(host="127.0.0.1", port=int(sys.argv[1]), protocol=int(sys.argv[2]))
call = client.execute_command
keys = [f"posts-{sys.argv[2]}:{{{partition}}}" for partition in range(30)]
for number, key in enumerate(keys):
    assert call("CT.CREATE", key, "TABLE_SLOTS", 1024, "SCHEMA", "likes", 24, "views", 24) == b"OK"
    assert call("CT.MINCRBY", key, 1, "likes", number, 2, "views", 7) == [number, 7]
for number, key in enumerate(keys):
    assert call("CT.GET", key, 1) == [number, 0]
    assert call("CT.MGET", key, 2, 1) == [[0, 7], [number, 0]]
nodes = {client.get_node_from_key(key).port for key in keys}
assert len(nodes) == 3, nodes
