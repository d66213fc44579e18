#include "services/broker/member_calls.h"

#include "absl/strings/str_format.h"

namespace fusionllm::services {

absl::StatusOr<MemberCalls::Permit> MemberCalls::Enter(const std::string& member) {
  const std::lock_guard lock(open_->mutex);
  int& calls = open_->calls[member];
  const int most = kForItself + kForEachOther * static_cast<int>(open_->calls.size() - 1);
  if (calls >= most) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("TooManyCalls: '%s' has %d calls open at this broker, as many as it may", member, calls));
  }
  ++calls;
  return Permit(nullptr, [open = open_, member](void*) {
    const std::lock_guard leaving(open->mutex);
    --open->calls.at(member);
  });
}

absl::StatusOr<MemberCalls::Permit> MemberCalls::Enter(const grpc::ServerContext& context) {
  const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
  if (names.empty()) return Permit();
  return Enter(std::string(names.front().data(), names.front().size()));
}

}  // namespace fusionllm::services
