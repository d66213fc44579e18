// What load_report measures, each a federation and operators of its own; prints lines of Markdown tables.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace fusionllm::load {

// Many jobs at once: until they run, at rest, failures among them, an operator that starts when they are there, their end and deletion.
struct FleetOptions {
  int jobs = 1000, executors = 10, members = 8;
  absl::Duration rest = absl::Minutes(2);
  int failures = 50;
};
void Fleet(const FleetOptions& options);

// One job over all members, whose API servers answer each request only after `delay`.
struct WideOptions {
  int members = 8, executors_each = 64, rounds = 3;
  absl::Duration delay;
};
void Wide(const WideOptions& options);

// Jobs on seven members while the eighth answers nothing and jobs wait for it, against the same while it answers and these run, in turns.
// One job every `pause`, so that none waits for the processor: what a hung member spares it would hide what it costs.
struct HungOptions {
  int members = 8, rounds = 30, jobs = 70;
  absl::Duration pause = absl::Milliseconds(50);
};
void Hung(const HungOptions& options);

// An operator that starts when many jobs are there, again and again.
struct StartOptions {
  int jobs = 1000, executors = 10, members = 8, rounds = 10;
};
void Start(const StartOptions& options);

// Two operators, of which the leading one ends.
struct FailoverOptions {
  int rounds = 3;
};
void Failover(const FailoverOptions& options);

// The operator killed after each write of a job's life on a hub and two members (crash_run.h), from the `first` on; ends the program at the
// first life that ends otherwise than one without a death.
struct SweepOptions {
  std::string scenario;  // empty: one after the other
  int first = 1, stride = 1;
  int max_writes = 0;  // at which it is killed, in each scenario; 0: all
};
void Sweep(const SweepOptions& options);

}  // namespace fusionllm::load
