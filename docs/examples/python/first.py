"""Enqueues ten mails and sends each of them once. README.md says how to run it."""
import sqlite3
import sys

import grpc
from tallystone.queue.v1 import queue_pb2 as pb, queue_pb2_grpc

QUEUE = "mails"
queue = queue_pb2_grpc.QueueStub(grpc.insecure_channel(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7600"))
mailbox = sqlite3.connect("mailbox.db")
mailbox.execute("CREATE TABLE IF NOT EXISTS sent (id TEXT PRIMARY KEY, body BLOB, fencing_token INTEGER)")


def send(lease):
    """Writes the mail, unless a worker with a later lease has written it: then that worker's result stands."""
    mailbox.execute(
        "INSERT INTO sent VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET body = excluded.body, fencing_token = excluded.fencing_token"
        " WHERE excluded.fencing_token > fencing_token",
        (lease.id, lease.payload, lease.fencing_token),
    )
    mailbox.commit()
    print(f"sent {lease.id}, attempt {lease.attempt}, fencing token {lease.fencing_token}")


# The id makes the call repeatable: the same id with the same content is the same message. The lower priority runs first.
mails = [pb.NewMessage(id=f"welcome-{n}", payload=f"Hello, customer {n}!".encode(), priority=n) for n in range(10)]
for result in queue.Enqueue(pb.EnqueueRequest(queue=QUEUE, messages=mails)).results:
    if result.WhichOneof("outcome") == "error":
        sys.exit(f"refused: {result.error.message}")

# Waits a second for the first message, and ends when none has come. A service would continue.
request = pb.DequeueRequest(queue=QUEUE, worker="mailer-1", limit=4, lease_ms=30_000, wait_ms=1_000)
while leases := queue.Dequeue(request).leases:
    done, failed = [], []
    for lease in leases:
        try:
            send(lease)
            done.append(pb.LeaseRef(id=lease.id, fencing_token=lease.fencing_token))
        except sqlite3.Error as error:
            failed.append(pb.LeaseRelease(id=lease.id, fencing_token=lease.fencing_token, reason=str(error)))
    if done:
        for result in queue.Complete(pb.CompleteRequest(queue=QUEUE, leases=done)).results:
            if result.WhichOneof("outcome") == "error":  # LEASE_LOST: it took too long, and another worker runs it.
                print(f"{result.id} is not ours any more: {result.error.message}")
    if failed:
        queue.Release(pb.ReleaseRequest(queue=QUEUE, releases=failed))
