// When this executor was last in touch with its broker, kept in a file that outlives the process.
//
// An executor in a Pod whose broker stays away ends with a failure, and the kubelet starts it again, for ever: where the hub is gone for
// good, that would hold the device for good. Once contact has been lost for longer than is allowed, an end with a failure becomes one that
// the kubelet leaves alone: exit code 0, with the reason in the container's termination message, by which the operator tells it from an
// executor that has done its work (docs/design/adr/0013).
//
// The time is the wall clock's, the only one that a file can carry over a restart of the machine. A step of that clock can at worst end an
// executor that has lost its broker anyway; the operator makes another.
// Thread-safe. RecordContact() and ExitCode() write a small file.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::services {

// The first word of the termination message; operator/cache/pod_view.cc looks for it.
inline constexpr char kBrokerLostReason[] = "BrokerLost";

class BrokerContact {
 public:
  struct Options {
    std::string file;                                      // of this executor alone; empty: nothing is kept
    absl::Duration lost_after = absl::InfiniteDuration();  // without contact for so long, the broker counts as gone for good
    std::string termination_log;                           // where the last sentence goes; empty: into the log alone
  };

  // Takes up what the process before has left. Without such a file, or with a time in it that is still to come, contact is taken to have
  // been now.
  BrokerContact(Options options, std::function<absl::Time()> now);

  // In touch now. A file that cannot be written is reported once in the log.
  void RecordContact();
  // The exit code of a program that was about to end with `code`, of a failure because of `why`, which the termination log gets.
  int ExitCode(int code, const std::string& why = "");

 private:
  void WriteTerminationLog(const std::string& sentence) const;
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::function<absl::Time()> now_;
  base::Mutex mutex_;
  absl::Time last_ ABSL_GUARDED_BY(mutex_);
  bool write_error_logged_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fusionllm::services
