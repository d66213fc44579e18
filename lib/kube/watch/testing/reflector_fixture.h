// A reflector that runs over an API server by script; what it tells is kept as lines, and its waits are over at once.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/watch/reflector.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/scripted_client.h"

namespace fusionllm::kube::testing {

inline absl::Status Error(int code, const std::string& reason) { return ToStatus({.code = code, .reason = reason, .message = reason}); }

// Waits are over at once, as far as real time goes; what was waited for is recorded.
class RecordingClock : public FakeClock {
 public:
  void WaitUntil(std::unique_lock<std::mutex>&, std::condition_variable&, absl::Duration deadline) override {
    const base::MutexLock lock(mutex_);
    waits_.push_back(deadline - Monotonic());
    Advance(waits_.back());
  }
  std::vector<absl::Duration> waits() const {
    const base::MutexLock lock(mutex_);
    return waits_;
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<absl::Duration> waits_ ABSL_GUARDED_BY(mutex_);
};

class RecordingSink : public ReflectorSink {
 public:
  void Replace(std::vector<ObjectPtr> objects, const std::vector<ObjectKey>& unreadable, const std::string& version) override {
    std::string names;
    for (const ObjectPtr& object : objects) names += " " + object->meta.name;
    for (const ObjectKey& key : unreadable) names += ", unreadable " + key.name;
    Add("list" + names + " at " + version);
  }
  void Apply(WatchEventType type, ObjectPtr object) override {
    Add(absl::StrCat(type == WatchEventType::kDeleted ? "delete " : "put ", object->meta.name));
  }
  void Unreadable(const ObjectKey& key, const std::string& version) override { Add(absl::StrCat("unreadable ", key.name, "@", version)); }
  void Advance(const std::string& version) override { Add("at " + version); }
  void Watching(bool open, const absl::Status& why) override {
    watching_ = open;
    if (!open && !why.ok()) Add("failed");
  }
  // As delivered last.
  bool watching() const { return watching_; }
  std::vector<std::string> lines() {
    const base::MutexLock lock(mutex_);
    return lines_;
  }

 private:
  void Add(std::string line) {
    const base::MutexLock lock(mutex_);
    lines_.push_back(std::move(line));
  }
  base::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> watching_ = false;
};

class ReflectorTest : public ::testing::Test {
 protected:
  ~ReflectorTest() override { Stop(); }
  void Start(WatchScope scope = {.resource = Pods()}, ReflectorLimits limits = {}) {
    reflector_ = std::make_unique<Reflector>(client_, clock_, std::move(scope), DecodePod, sink_, metrics_.Of("c", "pods"), limits, 7);
    thread_ = std::jthread([this](std::stop_token stop) { reflector_->Run(std::move(stop)); });
  }
  void Stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  // Blocks until so many lists and watches were asked for.
  void Await(size_t lists, size_t watches) {
    client_.Lists(lists);
    client_.Watches(watches);
  }

  RecordingClock clock_;
  metrics::Registry registry_{"p", "1"};
  InformerMetrics metrics_{registry_};
  ScriptedClient client_;
  RecordingSink sink_;
  std::unique_ptr<Reflector> reflector_;
  std::jthread thread_;
};

}  // namespace fusionllm::kube::testing
