#include "services/executor/broker_contact.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "services/termination_sentence.h"

namespace fusionllm::services {
namespace {

constexpr int64_t kMaxContactBytes = 64;

absl::Time ReadTime(const std::string& file) {
  const absl::StatusOr<std::string> text = base::ReadSmallFile(file, kMaxContactBytes);
  int64_t seconds = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &seconds)) return absl::InfiniteFuture();
  return absl::FromUnixSeconds(seconds);
}

}  // namespace

BrokerContact::BrokerContact(Options options, std::function<absl::Time()> now) : options_(std::move(options)), now_(std::move(now)) {
  const absl::Time at = now_();
  last_ = options_.file.empty() ? at : ReadTime(options_.file);
  if (last_ <= at) return;
  const base::MutexLock lock(mutex_);
  last_ = at;
  Write();
}

void BrokerContact::RecordContact() {
  const base::MutexLock lock(mutex_);
  last_ = now_();
  Write();
}

void BrokerContact::Write() {
  if (options_.file.empty()) return;
  const absl::Status status = base::ReplaceFile(options_.file, absl::StrCat(absl::ToUnixSeconds(last_), "\n"));
  if (!status.ok() && !write_error_logged_)
    base::Log(base::LogLevel::kWarning, absl::StrCat("--contact-file: ", std::string(status.message())));
  write_error_logged_ = !status.ok();
}

void BrokerContact::WriteTerminationLog(const std::string& sentence) const {
  if (options_.termination_log.empty() || sentence.empty()) return;
  const absl::Status status = base::WriteFile(options_.termination_log, TerminationSentence(sentence));
  if (!status.ok()) base::Log(base::LogLevel::kError, absl::StrCat("--termination-log: ", std::string(status.message())));
}

int BrokerContact::ExitCode(int code, const std::string& why) {
  const base::MutexLock lock(mutex_);
  if (code == base::kExitDone) return code;
  const absl::Duration away = now_() - last_;
  if (away < options_.lost_after) {
    WriteTerminationLog(why);
    return code;
  }
  const std::string sentence =
      absl::StrFormat("%s: no contact with the broker for %d s, of which %d are waited for: the device is given up", kBrokerLostReason,
                      absl::ToInt64Seconds(away), absl::ToInt64Seconds(options_.lost_after));
  base::Log(base::LogLevel::kError, sentence);
  WriteTerminationLog(sentence);
  return base::kExitDone;
}

}  // namespace fusionllm::services
