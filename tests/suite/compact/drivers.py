"""redis-py drives the module as it is: commands, pipelines, transactions, scripts, errors. Arguments: port, protocol."""
import struct
import sys
import redis

client = redis.Redis(port=int(sys.argv[1]), protocol=int(sys.argv[2]))
call = client.execute_command
assert call("CT.CREATE", "k", "SCHEMA", "likes", 24, "balance", "i16") == b"OK"
assert call("CT.INCRBY", "k", 7, "likes", 2, "balance", -3) == [2, -3]
assert call("CT.MINCRBY", "k", 7, "likes", 1, 2**64 - 1, "likes", 5) == [3, 5]
packed = b"".join(struct.pack("<QBi", number, 0, 1) for number in range(64))
assert call("CT.PINCRBY", "k", packed) == [64]
assert call("CT.MGET", "k", 7, 2**64 - 1, 1000) == [[4, -3], [5, 0], [0, 0]]
assert struct.unpack("<4q", call("CT.PGET", "k", struct.pack("<2Q", 7, 1))) == (4, -3, 1, 0)
with client.pipeline(transaction=True) as pipeline:
    pipeline.execute_command("CT.SET", "k", 1, "balance", 9)
    pipeline.execute_command("CT.GET", "k", 1)
    assert pipeline.execute() == [b"OK", [1, 9]]
script = client.register_script("return redis.call('CT.GET', KEYS[1], ARGV[1])")
assert script(keys=["k"], args=[1]) == [1, 9]
assert client.copy("k", "copy") and call("CT.GET", "copy", 1) == [1, 9]
assert client.memory_usage("k") > 0 and client.type("k") == b"tstone-ct"
info = call("CT.INFO", "k")
info = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2]))
assert info[b"ids"] == 65, info
try:
    call("CT.INCRBY", "k", 1, "likes", -2)
    raise AssertionError("a count below 0")
except redis.ResponseError as error:
    assert str(error).startswith("OVERFLOW"), error
