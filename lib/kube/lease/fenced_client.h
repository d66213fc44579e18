// A client that writes only while it may: a process that lost the lead, and does not know yet, must not write in the next leader's place.
//
// Every write first asks; its refusal is the call's error, and nothing is sent. What has been asked for already is on its way: a process
// that is stopped between the two writes all the same when it goes on. One who must exclude that, too, writes under a condition that the
// server checks (a resource version). Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "lib/kube/client/forwarding_client.h"

namespace fusionllm::kube {

class FencedClient : public ForwardingClient {
 public:
  // `may_write` does not block and is thread-safe. `client` must outlive it.
  FencedClient(ApiClient& client, std::function<absl::Status()> may_write) : ForwardingClient(client), may_write_(std::move(may_write)) {}

  absl::StatusOr<std::string> Create(const Resource& resource, absl::string_view ns, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override;
  absl::StatusOr<std::string> Update(const Resource& resource, const ObjectKey& key, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override;
  absl::StatusOr<std::string> Apply(const Resource& resource, const ObjectKey& key, absl::string_view body, const ApplyOptions& options,
                                    const CallOptions& call) override;
  absl::StatusOr<std::string> Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                    const WriteOptions& options, const CallOptions& call) override;
  absl::StatusOr<std::string> Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options,
                                     const CallOptions& call) override;

 private:
  const std::function<absl::Status()> may_write_;
};

}  // namespace fusionllm::kube
