// BullMQ as a peer of `tallystone bench queue`: one measurement per run, one JSON object on stdout.
//
//   node bullmq.mjs add  --port P --messages N --callers 64   Queue.add, one job per call
//   node bullmq.mjs work --port P --messages N --callers 64   one Worker at that concurrency, doing nothing
//
// The Redis on that port must be empty and is the caller's: this program starts and stops nothing.
import { randomBytes, randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { Queue, Worker } from "bullmq";

const QUEUE = "bench";
const PAYLOAD_BYTES = 100;
// BullMQ's range ends at 2^21 - 1; 0 would mean "no priority".
const PRIORITY_END = 2_097_152;
const JOB_OPTIONS = { removeOnComplete: true };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    port: { type: "string" },
    messages: { type: "string" },
    callers: { type: "string", default: "64" },
    // Plain jobs, which BullMQ keeps in a list: faster, but without an order of urgency.
    unprioritized: { type: "boolean", default: false },
  },
});
const messages = Number(values.messages);
const callers = Number(values.callers);
const connection = { host: "127.0.0.1", port: Number(values.port), maxRetriesPerRequest: null };

const version = JSON.parse(readFileSync(createRequire(import.meta.url).resolve("bullmq/package.json"))).version;
const payload = randomBytes(PAYLOAD_BYTES / 2).toString("hex");
const jobOptions = () => (values.unprioritized ? JOB_OPTIONS : { ...JOB_OPTIONS, priority: randomInt(1, PRIORITY_END) });

function report(seconds, latenciesMs) {
  latenciesMs.sort();
  const quantile = (q) => latenciesMs[Math.min(latenciesMs.length - 1, Math.floor(q * latenciesMs.length))] ?? null;
  console.log(JSON.stringify({ version, messages, seconds, p50_ms: quantile(0.5), p99_ms: quantile(0.99) }));
}

async function add() {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  await queue.add("warm-up", payload, jobOptions());
  const latenciesMs = new Float64Array(messages);
  let next = 0;
  const caller = async () => {
    for (let i = next++; i < messages; i = next++) {
      const began = performance.now();
      await queue.add("job", payload, jobOptions());
      latenciesMs[i] = performance.now() - began;
    }
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  report((performance.now() - began) / 1_000, latenciesMs);
  await queue.close();
}

async function work() {
  const queue = new Queue(QUEUE, { connection });
  for (let added = 0; added < messages; ) {
    const count = Math.min(1_000, messages - added);
    await queue.addBulk(Array.from({ length: count }, () => ({ name: "job", data: payload, opts: jobOptions() })));
    added += count;
  }
  const worker = new Worker(QUEUE, async () => {}, { connection, concurrency: callers, autorun: false });
  await worker.waitUntilReady();
  let completed = 0;
  const done = new Promise((resolve, reject) => {
    worker.on("completed", () => ++completed === messages && resolve());
    worker.on("failed", (_job, error) => reject(error));
    worker.on("error", reject);
  });
  const began = performance.now();
  worker.run().catch(() => {});
  await done;
  report((performance.now() - began) / 1_000, new Float64Array(0));
  await worker.close();
  await queue.close();
}

const verbs = { add, work };
const verb = verbs[positionals[0]];
if (!verb || !(messages > 0) || !(callers > 0) || !(connection.port > 0)) {
  console.error("usage: node bullmq.mjs add|work --port P --messages N [--callers 64] [--unprioritized]");
  process.exit(2);
}
await verb();
