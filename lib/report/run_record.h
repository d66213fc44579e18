// What is remembered of a run for its table and its report: plain values, as the run's JSON lines give them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/cpu_usage.h"
#include "lib/plan/plan.h"

namespace fusionllm::report {

struct StepPoint {
  int64_t step = 0;
  double loss = 0;  // NaN when training diverged, or no target counts (HasLoss)
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  double tokens_per_second = 0;  // images of jobs that have no tokens
  double samples_per_second = 0;
  int64_t targets = 0, ignored_targets = 0;  // that count, and that the loss ignores
};

struct EvaluationPoint {
  int64_t step = 0;
  double loss = 0;                 // NaN: none (WhyNoLoss)
  std::optional<double> accuracy;  // share, 0 to 1; none for a loss that counts no labels
};

struct Event {
  std::string reason;  // CamelCase
  int64_t step = 0;
  std::string message;
  std::string device;
};

// That is trained on or validated with.
struct DataFile {
  std::string path;
  int64_t bytes = 0;
};

// That was saved whole; it may have been removed since, as the job says.
struct Checkpoint {
  int64_t step = 0;
  std::string path;
};

// A link and a stage as measured over the whole run.
struct LinkTotal {
  std::string src, dst;
  int64_t bytes = 0;
  std::string codec;
  double ratio = 1;                         // as the newest plan has it (number_format.h); the sender's own is of what it compressed alone
  double bytes_per_s = 0;                   // measured bandwidth; 0: unknown
  std::optional<int64_t> evaluation_bytes;  // of bytes, by evaluations; none: not counted separately
  int64_t compared_messages = 0;            // with what the receiver decodes from them; the next two are of those
  double relative_error = 0;
  double cosine = 0;
};
struct StageTotal {
  int index = 0;
  int replica = 0;
  std::string device;
  double busy_ratio = 0;
  double lateness_s = 0;
  int64_t peak_memory_bytes = 0;
  int64_t predicted_memory_bytes = 0;
};

// What came of the codecs of a run; of all its plans.
struct CompressionTotal {
  double max_relative_error = 0;
  double min_cosine = 1;
  bool compared = false;  // the two above are known
  int64_t backoffs = 0;   // how often codecs were made less aggressive
};

struct Summary {
  int64_t steps = 0;
  double final_loss = 0;
  double median_step_s = 0;
  double predicted_step_s = 0;
  int64_t wire_bytes = 0;
  std::vector<LinkTotal> links;
  std::vector<StageTotal> stages;
  std::optional<CompressionTotal> compression;
};

// Times on CLOCK_MONOTONIC of the device's machine, so rows line up only among devices of one machine.
struct Span {
  enum class Kind { kForward, kBackward, kUpdate, kWait, kEvaluate };
  std::string device;
  int64_t step = 0;
  Kind kind = Kind::kForward;
  int32_t micro_batch = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t plan = 0;  // Run::plans when it came
};

struct Run {
  std::string title;
  std::string job;                // metadata.name
  std::string unit = "tokens";    // what a sample is counted in: "tokens" or "images"
  std::vector<StepPoint> steps;   // ascending
  size_t earlier_steps = 0;       // so many of them, the first, were made by earlier starts in the same folder
  bool of_earlier_start = false;  // this start found all steps made: what follows of "this start" is of the one that made the last of them
  int64_t steps_made = 0;         // by this start, those that were made again after a restore counted each time
  std::vector<EvaluationPoint> evaluations;
  std::vector<Event> events;
  std::vector<Checkpoint> checkpoints;            // ascending; of earlier starts, too
  std::vector<DataFile> files, validation_files;  // the first ones
  // The newest, as lines of a run give it: what they do not say is 0 or empty, and nothing else is promised of it.
  std::optional<plan::Plan> plan;
  int64_t plans = 0;  // how many there were
  std::optional<Summary> summary;
  std::vector<Span> spans;                     // of the steps that were traced under the newest plan that has any
  std::map<std::string, std::string> site_of;  // by device; empty without a topology
  std::string graph_svg;                       // trusted: an SVG element drawn by lib/opdag; empty: none
  std::string outcome;                         // a sentence
  int64_t total_steps = 0;                     // that the job asks for; 0: unknown
  int64_t targets_per_step = 0;                // of Run::unit in a global batch; 0: unknown
  int64_t parameters = 0;                      // that are trained; 0: unknown
  std::string started;                         // this start, "2026-11-27T17:40:12Z"; empty: unknown
  double elapsed_s = 0;                        // of this start, from its beginning to its end; 0: unknown
  std::optional<base::CpuUsage> processors;    // of this machine, while this start made steps
  bool machine_was_busy = false;               // by that, and by what the run needed
  std::string job_text;                        // the job as it was run, YAML; empty: unknown
};

// What a plan says of a replica, which may be one that it has not got: plans come from outside. Its share of the micro-batches, 0: unknown;
// the device of its stage, empty: unknown; the figures of its stage. How many have a device, at least one.
int64_t MicroBatchesOf(const plan::Plan& plan, int replica);
std::string DeviceOf(const plan::Stage& stage, int replica);
plan::Replica RankOf(const plan::Stage& stage, int replica);
int PipelinesOf(const plan::Plan& plan);
// Bytes of a step from one replica to the next along their chain, and back, by the devices at both ends.
std::map<std::pair<std::string, std::string>, int64_t> ChainBytes(const plan::Plan& plan);
// Bytes that went between replicas of the same stage over the whole run, both directions. Nothing where there is one replica, no summary,
// or several plans: devices had other places before.
std::optional<int64_t> BytesBetweenReplicas(const Run& run);

// Steps of this start, those of earlier ones in the same folder aside.
size_t OwnSteps(const Run& run);
// By what the bytes of this start are to be divided: its steps, those made again included; at least 1.
double StepsSent(const Run& run);
// A second over the steps of this start that count for the median: the median of the third step on, of all when there are no more than
// two; NaN without any. Tokens are Run::unit.
double MedianTokensPerSecond(const Run& run);
double MedianSamplesPerSecond(const Run& run);
// Of the newest plan as the summary has it; without one over the steps that count for the median.
double MedianStepSeconds(const Run& run);
// A sentence for each device that was lost on the way, with how the run went on: its figures are then not those of all its devices.
std::vector<std::string> LostDevices(const Run& run);
// Bytes that went from one site to another, both directions; 0 when no sites are known.
int64_t BytesBetweenSites(const Run& run);
// Null when the run did not make that step.
const StepPoint* FindStep(const Run& run, int64_t step);
// Loss after a step, or nothing when the run did not reach it.
std::optional<double> LossAt(const Run& run, int64_t step);

}  // namespace fusionllm::report
