#include "lib/kube/lease/fenced_client.h"

#include "lib/base/status_macros.h"

namespace fusionllm::kube {

absl::StatusOr<std::string> FencedClient::Create(const Resource& resource, absl::string_view ns, absl::string_view body,
                                                 const WriteOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(may_write_());
  return inner().Create(resource, ns, body, options, call);
}

absl::StatusOr<std::string> FencedClient::Update(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                                 const WriteOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(may_write_());
  return inner().Update(resource, key, body, options, call);
}

absl::StatusOr<std::string> FencedClient::Apply(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                                const ApplyOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(may_write_());
  return inner().Apply(resource, key, body, options, call);
}

absl::StatusOr<std::string> FencedClient::Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                                const WriteOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(may_write_());
  return inner().Patch(resource, key, type, body, options, call);
}

absl::StatusOr<std::string> FencedClient::Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options,
                                                 const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(may_write_());
  return inner().Delete(resource, key, options, call);
}

}  // namespace fusionllm::kube
