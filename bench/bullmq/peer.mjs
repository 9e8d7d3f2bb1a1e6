// BullMQ as a peer of the benchmark: the queue, its callers and its worker, driven by lines of JSON. A line on stdin is a
// request {id, do, …}; a line on stdout is its answer {id, …} or {id, error}. Requests are handled as they come, so that
// one may ask for counts while a load goes on. The moment at which a job fires is read by the clock of this process.
//
// Usage: node peer.mjs REDIS_PORT

import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';

const port = Number(process.argv[2]);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const name = 'bench';
const attribute = { order: '4711', reason: 'unpaid' };
const step = 10; // ms: how often a load with a rate submits what has become due to be submitted
const concurrency = 100;

const queue = new Queue(name, { connection });
queue.on('error', () => {}); // it connects again
let worker;
let done = 0;
let late = []; // ms
let numbers = []; // of the tasks
let first = 0; // Unix ms of the first that fired; 0: nothing has

const now = () => performance.timeOrigin + performance.now();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// job makes one that is due at a whole millisecond.
function job(load) {
  const asked = Date.now();
  const due = Math.ceil((load.at_ms || asked) + load.after_ms + Math.random() * load.spread_ms);
  return {
    name,
    data: { ...attribute, due },
    opts: { timestamp: asked, delay: Math.max(0, due - asked), removeOnComplete: true, attempts: 17 },
  };
}

async function submit(load, n) {
  if (n === 1) {
    const one = job(load);
    await queue.add(one.name, one.data, one.opts);
    return;
  }
  await queue.addBulk(Array.from({ length: n }, () => job(load)));
}

// load submits n tasks by so many callers at once, as fast as it goes or at a rate.
async function load(load) {
  const start = now();
  const calls = [];
  let sent = 0;
  const allowed = () => (load.rate ? Math.min(load.n, Math.floor(((now() - start) / 1000) * load.rate)) : load.n);
  const caller = async () => {
    while (sent < load.n) {
      const n = Math.min(load.batch, allowed() - sent);
      if (n <= 0) {
        await pause(step);
        continue;
      }
      sent += n;
      const asked = now();
      await submit(load, n);
      calls.push(now() - asked);
    }
  };
  await Promise.all(Array.from({ length: load.callers }, caller));
  return { took_ms: now() - start, calls_ms: calls };
}

const handlers = {
  load,
  work: async () => {
    worker = new Worker(
      name,
      async (j) => {
        const moment = now();
        first ||= moment;
        late.push(moment - j.data.due);
        numbers.push(Number(j.id));
      },
      { connection, concurrency },
    );
    worker.on('completed', () => done++);
    worker.on('error', () => {}); // it connects again
    await worker.waitUntilReady();
    return {};
  },
  done: async () => ({ done }),
  heard: async () => ({ heard: late.length }),
  fired: async () => ({ late_ms: late, numbers, first_ms: first }),
  reset: async () => {
    late = [];
    numbers = [];
    first = 0;
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  handlers[request.do](request).then(
    (answer) => process.stdout.write(JSON.stringify({ id: request.id, ...answer }) + '\n'),
    (error) => process.stdout.write(JSON.stringify({ id: request.id, error: String(error) }) + '\n'),
  );
}
process.exit(0); // stdin ended: whoever drove us is gone or done
