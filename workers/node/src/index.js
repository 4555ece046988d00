export { Worker } from './worker.js';
export { GiveUp, Retry, Stopped } from './errors.js';
export { schedule, send } from './send.js';
