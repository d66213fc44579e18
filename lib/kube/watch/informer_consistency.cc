// Whether an informer's cache is what the server has.
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/resource_version.h"
#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/list_splitter.h"

namespace fusionllm::kube {
namespace {

using Versions = absl::flat_hash_map<ObjectKey, std::string>;
using Keys = absl::flat_hash_set<ObjectKey>;

class VersionSink : public WatchSink {
 public:
  VersionSink(const ReflectorLimits& limits, const Keys& left_out)
      : limits_(limits), left_out_(left_out), splitter_(limits.max_object_bytes) {}
  absl::Status OnData(absl::string_view chunk) override {
    return splitter_.Push(chunk, [this](absl::string_view json) {
      const absl::StatusOr<ObjectPtr> object = DecodeMetadata(json);
      if (!object.ok()) return object.status();
      const ObjectKey key = (*object)->meta.Key();
      if (left_out_.contains(key)) return absl::OkStatus();
      bytes_ += (*object)->Bytes();
      versions_[key] = (*object)->meta.resource_version;
      return Reflector::CheckSize(limits_, versions_.size(), bytes_);
    });
  }
  absl::StatusOr<ListHead> Finish() const { return splitter_.Finish(); }
  const Versions& versions() const { return versions_; }

 private:
  const ReflectorLimits& limits_;
  const Keys& left_out_;
  ListSplitter splitter_;
  Versions versions_;
  size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<bool> Informer::IsConsistent(const CallOptions& call) const {
  Versions cached;
  Keys left_out;
  ListOptions options = {.label_selector = options_.scope.label_selector,
                         .field_selector = options_.scope.field_selector,
                         .resource_version_match = "Exact",
                         .metadata_only = true};
  {
    const base::MutexLock lock(mutex_);
    if (!listed_) return absl::FailedPreconditionError("nothing was listed yet");
    if (more_unreadable_) {
      return absl::FailedPreconditionError(absl::StrCat("more than ", kMaxUnreadable, " objects cannot be read, so none are compared"));
    }
    options.resource_version = version_;
    left_out = unreadable_;
    for (const ObjectPtr& object : store_.All()) {
      const ObjectKey key = object->meta.Key();
      if (!left_out.contains(key)) cached[key] = object->meta.resource_version;
    }
  }
  VersionSink sink(options_.limits, left_out);
  absl::Status status = client_.StreamList(options_.scope.resource, options_.scope.ns, options, sink, call);
  if (status.ok()) status = sink.Finish().status();
  if (!status.ok() && !ServerWentBack(options.resource_version, call, status)) return status;
  const bool same = status.ok() && sink.versions() == cached;
  if (!same) recorder_.Diverged();
  return same;
}

bool Informer::ServerWentBack(const std::string& resource_version, const CallOptions& call, const absl::Status& refusal) const {
  // Of a version that is yet to come some servers say that it is too large, others that their store has failed.
  const std::optional<ApiError> error = ApiErrorOf(refusal);
  if (!error.has_value() || error->code < 500) return false;
  const Keys none;
  VersionSink sink(options_.limits, none);
  const ListOptions newest = {
      .label_selector = options_.scope.label_selector, .field_selector = options_.scope.field_selector, .limit = 1, .metadata_only = true};
  if (!client_.StreamList(options_.scope.resource, options_.scope.ns, newest, sink, call).ok()) return false;
  const absl::StatusOr<ListHead> head = sink.Finish();
  return head.ok() && CompareResourceVersions(head->resource_version, resource_version).value_or(0) < 0;
}

}  // namespace fusionllm::kube
