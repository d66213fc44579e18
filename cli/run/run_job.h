// Runs a job with local processes from beginning to end: folder, processes, live output, report. What `fusionctl run` does, and each row of
// `fusionctl demo`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/run/run_session.h"
#include "cli/run/signal_watch.h"
#include "lib/job/field_locations.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"
#include "lib/report/run_record.h"
#include "lib/security/renewal.h"

namespace fusionllm::cli {

enum class OutputFormat { kText, kJson };

struct RunJobOptions {
  job::FusionJob job;          // data, graph and init.from absolute
  job::FieldLocations places;  // of the job's fields in its file, for errors
  std::string base;            // folder of the job file, where other relative paths start; empty: the output
  std::optional<job::Topology> topology;
  std::vector<std::string> devices;   // without a topology: one executor for each, "cpu", "cuda:N" or "auto"; empty: one, as it likes
  bool allow_nondeterminism = false;  // on GPUs: whatever is fastest, same bits or not
  std::string output;                 // empty: DefaultRunFolder
  std::string title;                  // in reports; empty: the job's name
  bool fresh = false;
  std::optional<std::string> profiles, listen;
  std::optional<double> join_timeout_seconds, stop_after_s;
  std::optional<std::string> log_level;        // of the services; absent: their default
  std::optional<std::string> metrics_address;  // of the broker; absent: a free local port
  OutputFormat format = OutputFormat::kText;
  std::string line_prefix;           // of every line of progress
  int64_t log_every = 0;             // steps between lines of progress; 0: as time goes (progress.h)
  std::string tag;                   // "run" of every JSON line; empty: none
  bool print_summary = true;         // on stdout when the run is over
  bool kept_by_default = false;      // spec.checkpoint is this program's doing: it is reported at the start
  std::vector<std::string> command;  // what was typed, without folder and --fresh, to say how to go on; empty: nothing is said of that
  std::string bin_folder;            // where fusion-broker, ... are; empty: beside this program
  // Between two looks whether certificates of the run are to be renewed.
  absl::Duration renewal_interval = security::RenewalThread::kCheckInterval;
};

struct RunJobResult {
  int exit_code = 0;
  bool time_limit_reached = false;
  std::string error;   // a sentence, already shown to the user
  std::string folder;  // absolute
  std::string report_path;
  report::Run run;
};

// What is wrong with the options together, before anything is made: devices that cannot be emulated, addresses that cannot be listened on.
absl::Status CheckRunJob(const RunJobOptions& options);

// Whether a run could save in its folder and in those of its checkpoints and their copies, as far as can be known without making or writing
// anything. Errors: those of RunFolder::Check and FolderLock::Check, and of services::CheckCheckpointFolders.
absl::Status CheckRunFolders(const RunJobOptions& options);

// Progress and complaints go to stderr, results to stdout. Call on the main thread; blocks. An error status: nothing was run.
absl::StatusOr<RunJobResult> RunJob(const RunJobOptions& options, SignalWatch& signals);

// The folder of this program's binary.
absl::StatusOr<std::string> ProgramFolder();
// What this machine is, for reports: processor, cores, memory, system.
std::vector<std::pair<std::string, std::string>> DescribeMachine();

}  // namespace fusionllm::cli
