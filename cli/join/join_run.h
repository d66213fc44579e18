// Puts this machine at the disposal of a run that another machine started with `fusionctl run --listen`.
//
// Dials out only: a token buys credentials from the run's broker, then fusion-executor works as a child of this process until the run is
// over. Credentials live in a folder of their own that only this user can read, removed at the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/run/signal_watch.h"

namespace fusionllm::cli {

struct JoinOptions {
  std::string address;                   // of the run, "host:port"
  std::string token;                     // what fusionctl run --listen printed
  std::string name;                      // wanted; empty: the broker chooses
  std::string device = "auto";           // as kernels::ChooseDevice takes it
  bool allow_nondeterminism = false;     // fusion-executor's
  bool spare = false;                    // no stage until another machine is lost
  std::optional<std::string> listen;     // host:port of this machine that the others can dial; absent: they are met at the broker
  std::optional<std::string> advertise;  // host:port dialable, that they dial instead and that leads to `listen`
  std::string site;                      // that the machine is of; empty: one of its own
  std::string site_checkpoints;          // folder of that site which keeps its shards of checkpoints; empty: the run's machine gets them
  // What of this machine is open to the run beside its processor (services/executor/local_access.h); empty, false: nothing.
  std::string data, shared_folder;
  bool object_stores = false;
  std::optional<std::string> log_level;  // of the executor; absent: warning
  double enroll_limit_s = 20;
  std::string bin_folder;  // where fusion-executor is; empty: beside this program
};

struct Enrolled {
  std::string name;
  std::string ca_pem, certificate_pem, private_key_pem;
};

// Blocks up to enroll_limit_s. Errors, as sentences: InvalidArgument (the token is not one, not that of the run, or of another run; the
// name is in use or no name; no such address), FailedPrecondition (another version), Unavailable (no answer), others by the broker.
absl::StatusOr<Enrolled> Enroll(const JoinOptions& options);
// The sentence of its Unavailable, where gRPC `said` why there is no connection.
std::string WhyUnreachable(absl::string_view address, absl::string_view said);

// What JoinRun starts: the fusion-executor of `bin_folder` under the name that the broker gave, with the credentials of that folder, and
// closed to the run but for what the options open.
std::vector<std::string> ExecutorCommand(const JoinOptions& options, const std::string& bin_folder, const std::string& name,
                                         const std::string& credentials_folder);

// Enrolls and works; blocks until the run is over. The value is the exit code: 0, 1 when the run or the executor failed, 130 when
// interrupted. Progress goes to stderr. Errors: those of Enroll, and Unavailable when the executor cannot be started.
absl::StatusOr<int> JoinRun(const JoinOptions& options, SignalWatch& signals);

}  // namespace fusionllm::cli
