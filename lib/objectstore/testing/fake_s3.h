// An S3 server in memory, on a free port of this machine: objects, listings in pages, uploads in parts. It wants requests signed, in form:
// the credential's scope, the date, the headers that must be signed, a checksum that is the body's. Whether the signature is the right one
// is for a real server to say (e2e/scenarios). A test may answer in its place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/base/mutex.h"
#include "lib/kube/testing/raw_server.h"
#include "lib/objectstore/object_store.h"

namespace fusionllm::objectstore::testing {

struct FakeRequest {
  std::string method, bucket, key;  // unescaped
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class FakeS3 {
 public:
  // Called before a request is served, on its connection's thread. True: the hook has answered, or has broken the connection by returning
  // without an answer; the connection ends.
  using Hook = std::function<bool(const FakeRequest& request, kube::testing::RawConnection& connection)>;

  explicit FakeS3(std::vector<std::string> buckets = {"models"});

  void SetHook(Hook hook);
  StoreSettings Settings() const;
  // Has this process, and those that it starts, use the server: sets the variables of lib/objectstore/settings.h, and leaves them.
  void SetEnvironment() const;
  std::string Url() const { return server_->Url(); }

  void Put(const std::string& bucket, const std::string& key, const std::string& content);
  std::optional<std::string> Get(const std::string& bucket, const std::string& key) const;
  std::vector<std::string> Keys(const std::string& bucket) const;
  // "PUT models/a", in the order they were served.
  std::vector<std::string> Log() const;
  size_t open_uploads() const;

  static std::string Error(absl::string_view code, absl::string_view message);

 private:
  struct Object {
    std::string content, etag, modified;
  };
  struct Answer {
    int code = 200;
    std::string body, headers;
  };
  void Serve(kube::testing::RawConnection& connection);
  Answer Handle(const FakeRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer List(const FakeRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer GetObject(const FakeRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer Upload(const FakeRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Store(const std::string& bucket, const std::string& key, const std::string& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  Hook hook_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::map<std::string, Object>> buckets_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::map<int, std::string>> uploads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  int64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<kube::testing::RawServer> server_;  // last: its threads use the others
};

// Pauses of a millisecond, for tests.
StoreOptions FastRetryOptions(int attempts = 4);

}  // namespace fusionllm::objectstore::testing
