package redistimer

// PollEvery is the interval at which a slot is polled at least.
const PollEvery = pollEvery
