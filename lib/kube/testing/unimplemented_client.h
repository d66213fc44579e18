// A client that answers nothing: what a test's own client derives from, to answer the verbs that matter there.
#pragma once

#include <string>

#include "lib/kube/client/api_client.h"

namespace fusionllm::kube::testing {

class UnimplementedClient : public ApiClient {
 public:
  absl::StatusOr<std::string> Get(const Resource&, const ObjectKey&, const CallOptions&) override { return Refusal(); }
  absl::StatusOr<std::string> GetMetadata(const Resource&, const ObjectKey&, const CallOptions&) override { return Refusal(); }
  absl::StatusOr<std::string> List(const Resource&, absl::string_view, const ListOptions&, const CallOptions&) override {
    return Refusal();
  }
  absl::StatusOr<std::string> Create(const Resource&, absl::string_view, absl::string_view, const WriteOptions&,
                                     const CallOptions&) override {
    return Refusal();
  }
  absl::StatusOr<std::string> Update(const Resource&, const ObjectKey&, absl::string_view, const WriteOptions&,
                                     const CallOptions&) override {
    return Refusal();
  }
  absl::StatusOr<std::string> Apply(const Resource&, const ObjectKey&, absl::string_view, const ApplyOptions&,
                                    const CallOptions&) override {
    return Refusal();
  }
  absl::StatusOr<std::string> Patch(const Resource&, const ObjectKey&, PatchType, absl::string_view, const WriteOptions&,
                                    const CallOptions&) override {
    return Refusal();
  }
  absl::StatusOr<std::string> Delete(const Resource&, const ObjectKey&, const DeleteOptions&, const CallOptions&) override {
    return Refusal();
  }
  absl::Status Watch(const Resource&, absl::string_view, const WatchOptions&, WatchSink&, std::stop_token) override { return Refusal(); }
  absl::StatusOr<std::string> GetPath(absl::string_view, const CallOptions&) override { return Refusal(); }

 private:
  static absl::Status Refusal() { return absl::UnimplementedError("this test does not answer that"); }
};

}  // namespace fusionllm::kube::testing
