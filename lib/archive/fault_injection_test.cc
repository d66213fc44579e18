// A process that is killed while it copies a checkpoint to a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "lib/archive/fetch_latest.h"
#include "lib/archive/object_store_mirror_target.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::archive {
namespace {

using ::testing::ElementsAre;

// Of the transfer: PUTs that are let through before the process is killed. The sample has three files, a manifest and `latest`.
class FaultInjectionTest : public ::testing::TestWithParam<int> {};

TEST_P(FaultInjectionTest, KilledUploadKeepsPreviousCheckpoint) {
  base::TempFolder folder;
  const std::string first = checkpoint::SaveSample(folder / "run", 10, 1).value(),
                    second = checkpoint::SaveSample(folder / "run", 20, 1).value();
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  // Before there are threads. The child learns where the server is from the pipe.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    objectstore::StoreSettings settings{
        .region = "eu-test-1", .access_key_id = "AKIDEXAMPLE", .secret_access_key = "secret/+=", .session_token = "session"};
    char url[128] = {};
    if (read(channel[0], url, sizeof(url) - 1) <= 0) _exit(1);
    settings.endpoint = url;
    ObjectStoreMirrorTarget place({.bucket = "models", .key = "a"}, settings, {});
    (void)place.Put(second, *checkpoint::LoadManifest(second));
    _exit(0);
  }
  objectstore::testing::FakeS3 server;
  const auto place = std::make_unique<ObjectStoreMirrorTarget>(base::ObjectUri{.bucket = "models", .key = "a"}, server.Settings(),
                                                               objectstore::testing::FastRetryOptions());
  ASSERT_TRUE(place->Put(first, *checkpoint::LoadManifest(first)).ok());

  std::mutex mutex;
  std::condition_variable reached;
  int puts = 0;
  bool there = false;
  server.SetHook([&](const objectstore::testing::FakeRequest& request, kube::testing::RawConnection& connection) {
    if (request.method != "PUT") return false;
    {
      const std::lock_guard lock(mutex);
      if (puts++ < GetParam()) return false;
      there = true;
      reached.notify_all();
    }
    connection.WaitForClose();
    return true;
  });
  const std::string url = server.Url();
  ASSERT_EQ(write(channel[1], url.data(), url.size()), static_cast<ssize_t>(url.size()));
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(reached.wait_for(lock, std::chrono::seconds(60), [&] { return there; }));
  }
  kill(child, SIGKILL);
  int end = 0;
  ASSERT_EQ(waitpid(child, &end, 0), child);
  ASSERT_TRUE(WIFSIGNALED(end));
  close(channel[0]);
  close(channel[1]);

  server.SetHook(nullptr);
  const bool whole = GetParam() > 3;  // only `latest` was owed
  const auto newest = FetchLatest(folder / "elsewhere", {place.get()});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, folder / (whole ? "elsewhere/step-000020" : "elsewhere/step-000010"));
  EXPECT_TRUE(newest->skipped.empty());
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(*newest->path).ok());
  ASSERT_TRUE(place->Put(second, *checkpoint::LoadManifest(second)).ok());
  EXPECT_THAT(place->List().value(), ElementsAre("step-000020", "step-000010"));
  EXPECT_EQ(server.Get("models", "a/latest"), "step-000020\n");
}

INSTANTIATE_TEST_SUITE_P(AtEveryWrite, FaultInjectionTest, ::testing::Range(0, 5));

}  // namespace
}  // namespace fusionllm::archive
