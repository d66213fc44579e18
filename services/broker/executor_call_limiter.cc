#include "services/broker/executor_call_limiter.h"

#include "absl/strings/str_format.h"

namespace fusionllm::services {

absl::StatusOr<ExecutorCallLimiter::Permit> ExecutorCallLimiter::Enter(const std::string& executor) {
  const base::MutexLock lock(open_->mutex);
  int& calls = open_->calls[executor];
  const int most = kMaxOwnCalls + kMaxCallsPerOther * static_cast<int>(open_->calls.size() - 1);
  if (calls >= most) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("TooManyCalls: '%s' has %d calls open at this broker, as many as it may", executor, calls));
  }
  ++calls;
  return Permit(nullptr, [open = open_, executor](void*) {
    const base::MutexLock leaving(open->mutex);
    --open->calls.at(executor);
  });
}

absl::StatusOr<ExecutorCallLimiter::Permit> ExecutorCallLimiter::Enter(const grpc::ServerContext& context) {
  const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
  if (names.empty()) return Permit();
  return Enter(std::string(names.front().data(), names.front().size()));
}

}  // namespace fusionllm::services
