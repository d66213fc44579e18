// Informer, leader election and events against servers that speak HTTP: the fake one, and the one that FUSIONLLM_TEST_KUBECONFIG names, any
// cluster where namespaces may be made. In real time, so times are short and nothing is said about how long anything takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/kube/client/connect.h"
#include "lib/kube/events/event_recorder.h"
#include "lib/kube/lease/leader_elector.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_http_server.h"
#include "lib/kube/testing/objects.h"
#include "lib/kube/watch/informer.h"

namespace fusionllm::kube::testing {
namespace {

using nlohmann::json;

class ControllerParts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "RealServer") {
      const char* const kubeconfig = std::getenv("FUSIONLLM_TEST_KUBECONFIG");
      if (kubeconfig == nullptr || *kubeconfig == '\0') GTEST_SKIP() << "FUSIONLLM_TEST_KUBECONFIG names no API server";
      auto client = Connect({.kubeconfig = kubeconfig}, RealClock());
      ASSERT_TRUE(client.ok()) << client.status();
      client_ = *std::move(client);
    } else {
      fake_ = std::make_unique<FakeApiServer>(RealClock());
      http_ = std::make_unique<FakeHttpServer>(*fake_);
      ClientConfig config;
      config.server = http_->Url();
      auto access = OpenAccess(config, RealClock());
      ASSERT_TRUE(access.ok()) << access.status();
      client_ = std::make_unique<RestClient>(*std::move(access), RestClientOptions(), RealClock());
    }
    const std::string body =
        json{{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"generateName", "controller-parts-"}}}}.dump();
    ns_ = Parsed(client_->Create(kNamespaces, "", body))["metadata"].value("name", "");
    ASSERT_NE(ns_, "");
  }
  void TearDown() override {
    if (ns_.empty()) return;
    EXPECT_TRUE(client_->Delete(kNamespaces, {"", ns_}).ok());
  }

  json Put(const std::string& name, const std::string& value) {
    const json body = {
        {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}, {"namespace", ns_}, {"labels", {{"part", value}}}}}};
    return Parsed(client_->Apply(kConfigMaps, {ns_, name}, body.dump(), {.field_manager = "test"}));
  }

  std::unique_ptr<FakeApiServer> fake_;
  std::unique_ptr<FakeHttpServer> http_;
  std::unique_ptr<ApiClient> client_;
  std::string ns_;
};

// What a handler got, and waiting for it.
class EventsNamed {
 public:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.insert(line);
    changed_.notify_all();
  }
  void Await(const std::string& line) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lines_.contains(line); });
  }
  bool Has(const std::string& line) {
    const std::lock_guard lock(mutex_);
    return lines_.contains(line);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> lines_;
};

TEST_P(ControllerParts, AnInformerFollowsWhatItsSelectorMatches) {
  Put("there", "wanted");
  Put("unwanted", "other");
  Informer informer(*client_, RealClock(), nullptr,
                    {.scope = {.resource = kConfigMaps, .ns = ns_, .label_selector = "part in (wanted,changed)"}, .decode = DecodeJson});
  EventsNamed events;
  informer.AddHandler([&](const InformerEvent& event) {
    const char* const kinds[] = {"added ", "updated ", "deleted "};
    events.Add(absl::StrCat(kinds[static_cast<int>(event.kind)], event.object->meta.name));
  });
  informer.Start();
  ASSERT_TRUE(informer.WaitForSync(absl::Minutes(1)));
  events.Await("added there");
  Put("new", "wanted");
  events.Await("added new");
  EXPECT_TRUE(informer.IsConsistent().value_or(false));
  const json changed = Put("there", "changed");
  events.Await("updated there");
  EXPECT_EQ(informer.Get({ns_, "there"})->meta.resource_version, VersionOf(changed));
  Put("there", "other");  // it is still there, but not for this selector
  events.Await("deleted there");
  ASSERT_TRUE(client_->Delete(kConfigMaps, {ns_, "new"}).ok());
  events.Await("deleted new");
  EXPECT_EQ(informer.size(), 0u);
  EXPECT_FALSE(events.Has("added unwanted"));
  EXPECT_TRUE(informer.State().watching);
}

TEST_P(ControllerParts, LeadershipPassesFromOneToTheNext) {
  const auto options = [&](const std::string& identity) {
    return LeaderElector::Options{
        .lease = {ns_, "operator"},
        .identity = identity,
        .times = {.lease = absl::Seconds(60), .renew_deadline = absl::Seconds(40), .retry = absl::Milliseconds(100)},
        .on_lost = [](const std::string& why) { ADD_FAILURE() << why; }};
  };
  LeaderElector first(*client_, RealClock(), nullptr, options("first"));
  ASSERT_TRUE(first.Acquire({}).ok());
  const auto lease = [&] { return Parsed(client_->Get(LeaseResource(), {ns_, "operator"})); };
  const json taken = lease();
  EXPECT_EQ(taken["spec"]["holderIdentity"], "first");
  LeaderElector second(*client_, RealClock(), nullptr, options("second"));
  std::jthread waiting([&](std::stop_token stop) { second.Acquire(std::move(stop)).IgnoreError(); });
  while (lease()["spec"]["renewTime"] == taken["spec"]["renewTime"]) std::this_thread::yield();
  EXPECT_FALSE(second.IsLeader());
  ASSERT_TRUE(first.Release().ok());
  waiting.join();  // long before the lease would have expired
  EXPECT_TRUE(second.IsLeader());
  EXPECT_EQ(second.epoch(), first.epoch() + 1);
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "second");
  ASSERT_TRUE(second.Release().ok());
  EXPECT_EQ(lease()["spec"].value("holderIdentity", ""), "");
}

TEST_P(ControllerParts, EventsArriveAndAreCounted) {
  EventRecorder recorder(*client_, RealClock(), nullptr, "fusionllm.io/test", "test-0");
  const json object = Put("regarded", "x");
  const ObjectReference regarding = {"v1", "ConfigMap", {ns_, "regarded"}, object["metadata"].value("uid", "")};
  for (int i = 0; i < 3; ++i) {
    recorder.Record({.regarding = regarding, .reason = "Tested", .action = "Test", .note = "It was tested."});
  }
  recorder.Record(
      {.regarding = regarding, .type = EventType::kWarning, .reason = "Failed", .action = "Test", .note = std::string(2000, 'x')});
  ASSERT_TRUE(recorder.Flush(absl::Minutes(1)));
  const json events = Parsed(client_->List({"events.k8s.io", "v1", "events", "Event", true}, ns_))["items"];
  ASSERT_EQ(events.size(), 2u);
  for (const json& event : events) {
    EXPECT_EQ(event["regarding"]["name"], "regarded");
    EXPECT_EQ(event["reportingController"], "fusionllm.io/test");
    const bool repeated = event["reason"] == "Tested";
    EXPECT_EQ(event.contains("series") && !event["series"].is_null() ? event["series"]["count"].get<int>() : 1, repeated ? 3 : 1);
    EXPECT_EQ(event["note"].get<std::string>().size(), repeated ? 14 : kMaxEventNoteBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Servers, ControllerParts, ::testing::Values("OverHttp", "RealServer"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fusionllm::kube::testing
