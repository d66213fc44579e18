// Whether an informer's cache is what the server has.
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/list_splitter.h"

namespace fusionllm::kube {
namespace {

using Versions = absl::flat_hash_map<ObjectKey, std::string>;

class VersionSink : public WatchSink {
 public:
  explicit VersionSink(const ReflectorLimits& limits) : limits_(limits), splitter_(limits.max_object_bytes) {}
  absl::Status OnData(absl::string_view chunk) override {
    return splitter_.Push(chunk, [this](absl::string_view json) {
      const absl::StatusOr<ObjectPtr> object = DecodeMetadata(json);
      if (!object.ok()) return object.status();
      bytes_ += (*object)->Bytes();
      versions_[(*object)->meta.Key()] = (*object)->meta.resource_version;
      return Reflector::CheckSize(limits_, versions_.size(), bytes_);
    });
  }
  absl::StatusOr<ListHead> Finish() const { return splitter_.Finish(); }
  const Versions& versions() const { return versions_; }

 private:
  const ReflectorLimits& limits_;
  ListSplitter splitter_;
  Versions versions_;
  size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<bool> Informer::IsConsistent(const CallOptions& call) const {
  Versions cached;
  ListOptions options = {.label_selector = options_.scope.label_selector,
                         .field_selector = options_.scope.field_selector,
                         .resource_version_match = "Exact",
                         .metadata_only = true};
  {
    const std::lock_guard lock(mutex_);
    if (!listed_) return absl::FailedPreconditionError("nothing was listed yet");
    options.resource_version = version_;
    for (const ObjectPtr& object : store_.All()) cached[object->meta.Key()] = object->meta.resource_version;
  }
  VersionSink sink(options_.limits);
  absl::Status status = client_.StreamList(options_.scope.resource, options_.scope.ns, options, sink, call);
  if (status.ok()) status = sink.Finish().status();
  if (!status.ok()) return status;
  const bool same = sink.versions() == cached;
  if (!same) probe_.Diverged();
  return same;
}

}  // namespace fusionllm::kube
