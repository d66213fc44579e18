// The verbs of a fake API server on its store: what each answers and changes. No time passes in it and nothing blocks; watches, faults and
// threads are those of FakeApiServer. Not thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/clock.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_apply.h"
#include "lib/kube/testing/fake_request.h"
#include "lib/kube/testing/fake_store.h"

namespace fusionllm::kube::testing {

struct FakeKind {
  Resource resource;
  KindOptions options;
  std::string collection() const { return resource.Name(); }
};

struct FakeAnswer {
  int code = 200;
  Json body;  // a string: as it is, whatever it is the text of
};

// A refusal as the server words it.
absl::Status Refuse(int code, std::string reason, std::string message, std::vector<ErrorCause> causes = {});
// metav1.Status of a refusal.
Json StatusObject(const ApiError& error);

class FakeApi {
 public:
  explicit FakeApi(Clock& clock);

  void Serve(const Resource& resource, const KindOptions& options);
  absl::StatusOr<const FakeKind*> FindKind(const FakeRequest& request) const;
  // All verbs but watch.
  absl::StatusOr<FakeAnswer> Do(const FakeRequest& request, const std::string& body);
  // The object as the request wants to see it.
  static Json Shown(const FakeRequest& request, const Json& object);
  FakeStore& store() { return store_; }
  const FakeStore& store() const { return store_; }

 private:
  struct Write {
    const FakeKind& kind;
    const FakeRequest& request;
    ObjectKey key;
    bool dry_run = false;
    FieldManager manager;
  };

  absl::StatusOr<FakeAnswer> Path(const FakeRequest& request) const;
  absl::StatusOr<FakeAnswer> Get(const FakeKind& kind, const FakeRequest& request) const;
  absl::StatusOr<FakeAnswer> List(const FakeKind& kind, const FakeRequest& request) const;
  // The object as an element of a list.
  const std::string& ItemText(const FakeKind& kind, const ObjectKey& key, const SharedJson& object) const;
  absl::StatusOr<FakeAnswer> Create(const Write& write, Json object);
  // A TokenRequest of an account.
  absl::StatusOr<FakeAnswer> CreateToken(const FakeKind& accounts, const FakeRequest& request, const Json& asked) const;
  absl::StatusOr<FakeAnswer> Update(const Write& write, Json object);
  absl::StatusOr<FakeAnswer> Patch(const Write& write, const Json& patch);
  absl::StatusOr<FakeAnswer> Apply(const Write& write, Json applied);
  absl::StatusOr<FakeAnswer> Delete(const Write& write, const Json& options);

  absl::StatusOr<SharedJson> Existing(const Write& write) const;
  absl::Status CheckNamespace(const Write& write) const;
  // The next state of an object that exists: what clients cannot change stays, nothing happens when nothing changes, and one that is being
  // deleted goes with its last finalizer.
  FakeAnswer Commit(const Write& write, const Json& old, Json next, FieldOwners owners);
  FakeAnswer Insert(const Write& write, Json object, FieldOwners owners);
  // Ends an object for good, and with it what it owns.
  void Remove(const std::string& collection, const ObjectKey& key);
  // Begins to delete: what nothing holds is gone afterwards.
  void BeginDelete(const FakeKind& kind, const ObjectKey& key, std::optional<int> grace_s);
  void CollectDependents(const std::string& uid);
  void OrphanDependents(const std::string& uid);
  void NoteOwners(const std::string& collection, const ObjectKey& key, const Json& object);
  // Those whose owner it is, or was.
  std::set<std::pair<std::string, ObjectKey>> DependentsOf(const std::string& uid) const;
  void FinishNamespaces();
  bool Exists(const std::string& uid) const;
  const FakeKind* KindOf(const std::string& collection) const;
  std::string NewUid();
  // What the server gives a Service that has none (and had none): an address in the cluster and, if its type wants them, node ports.
  void FillService(const Json& old, Json& service);
  std::string Timestamp() const;

  struct Item {
    SharedJson of;
    std::string text;
  };

  Clock& clock_;
  std::map<std::string, FakeKind> kinds_;                           // by collection
  mutable std::map<std::string, std::map<ObjectKey, Item>> items_;  // by collection: as lists last showed them
  FakeStore store_;
  std::map<std::string, FieldOwners> owners_;                                      // by uid
  std::map<std::string, std::set<std::pair<std::string, ObjectKey>>> dependents_;  // collection and key, by the owner's uid
  uint32_t instance_ = 0;  // of this process: no two of its clusters give the same uid
  int64_t uids_ = 0;
  int64_t addresses_ = 0;
};

}  // namespace fusionllm::kube::testing
