#include "lib/objectstore/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::objectstore {
namespace {

using base::ObjectUri;
using kube::testing::RawConnection;
using ::testing::AllOf;
using testing::FakeRequest;
using testing::FakeS3;
using testing::FastRetryOptions;
using ::testing::HasSubstr;
using ::testing::Not;

class ObjectStoreTest : public ::testing::Test {
 protected:
  // Answers the first `times` requests of a method itself.
  void First(int times, const std::string& method, std::function<void(RawConnection&)> answer) {
    const auto left = std::make_shared<std::atomic<int>>(times);
    server_.SetHook([=](const FakeRequest& request, RawConnection& connection) {
      if (request.method != method || left->fetch_sub(1) <= 0) return false;
      answer(connection);
      return true;
    });
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  FakeS3 server_;
  base::TempFolder folder_;
  ObjectStore store_{server_.Settings(), FastRetryOptions()};
  const ObjectUri uri_{.bucket = "models", .key = "runs/a b+c&d=é/step"};
};

TEST_F(ObjectStoreTest, WhatIsWrittenIsReadListedFetchedAndRemoved) {
  ASSERT_TRUE(store_.Write(uri_, "content").ok());
  EXPECT_EQ(server_.Keys("models"), std::vector<std::string>{uri_.key});
  EXPECT_EQ(store_.Read(uri_, 100).value(), "content");
  const auto listed = store_.List("models", "runs/", 10);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->front().key, uri_.key);
  const auto fetched = store_.Fetch(uri_, 7, listed->front().etag, folder_ / "f");
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->sha256, Sha256Hex("content"));
  EXPECT_EQ(base::ReadWholeFile(folder_ / "f"), "content");
  ASSERT_TRUE(store_.Remove(uri_).ok());
  ASSERT_TRUE(store_.Remove(uri_).ok());
  EXPECT_TRUE(server_.Keys("models").empty());
}

TEST_F(ObjectStoreTest, ALongFileGoesUpInPartsAndAShortOneAtOnce) {
  StoreOptions options = FastRetryOptions();
  options.part_bytes = 1000;
  ObjectStore store(server_.Settings(), options);
  std::string content;
  for (int i = 0; content.size() < 3500; ++i) absl::StrAppend(&content, i, " ");
  const std::string path = folder_.Write("long", content);
  ASSERT_TRUE(store.Upload(path, Sha256Hex(content), uri_).ok());
  EXPECT_EQ(server_.Get("models", uri_.key), content);
  EXPECT_EQ(server_.Log().size(), 6u);  // begun, four parts, completed
  const std::string brief = folder_.Write("short", "short");
  ASSERT_TRUE(store.Upload(brief, Sha256Hex("short"), uri_).ok());
  EXPECT_EQ(server_.Get("models", uri_.key), "short");
  EXPECT_EQ(server_.Log().size(), 7u);
}

TEST_F(ObjectStoreTest, AFileThatIsNotWhatItWasIsNotStored) {
  StoreOptions options = FastRetryOptions();
  options.part_bytes = 4;
  ObjectStore in_parts(server_.Settings(), options);
  const std::string path = folder_.Write("file", "damaged");
  EXPECT_EQ(in_parts.Upload(path, Sha256Hex("content"), uri_).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(server_.open_uploads(), 0u);  // given up, so that its parts cost nothing
  EXPECT_FALSE(store_.Upload(path, Sha256Hex("content"), uri_).ok());
  EXPECT_TRUE(server_.Keys("models").empty());
}

TEST_F(ObjectStoreTest, AServerInTroubleIsAskedAgain) {
  server_.Put("models", uri_.key, "content");
  First(2, "GET", [](RawConnection& connection) { connection.Answer(503, FakeS3::Error("SlowDown", "Please reduce your request rate.")); });
  EXPECT_EQ(store_.Read(uri_, 100).value(), "content");
  First(1, "PUT", [](RawConnection& connection) { connection.Answer(500, ""); });
  EXPECT_TRUE(store_.Write(uri_, "new").ok());
  First(1, "GET", [](RawConnection&) {});  // hangs up
  EXPECT_EQ(store_.Read(uri_, 100).value(), "new");
}

TEST_F(ObjectStoreTest, PermanentErrorQuotesServerMessage) {
  std::atomic<int> asked = 0;
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    ++asked;
    return connection.Answer(403, FakeS3::Error("AccessDenied", "Not for you."));
  });
  const absl::Status status = store_.Write(uri_, "content");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("PUT s3://models/runs/"), HasSubstr(server_.Url()), HasSubstr("HTTP 403 AccessDenied: Not for you.")));
  EXPECT_EQ(asked, 1);
}

TEST_F(ObjectStoreTest, AClockThatTheServerFindsWrongIsNamed) {
  std::atomic<int> asked = 0;
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    ++asked;
    return connection.Answer(
        403, FakeS3::Error("RequestTimeTooSkewed", "The difference between the request time and the current time is too large."));
  });
  const absl::Status status = store_.Read(uri_, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("HTTP 403 RequestTimeTooSkewed"), HasSubstr("; the clock of this machine says 2")));
  EXPECT_EQ(asked, 1) << "it is as wrong a second later";
}

TEST_F(ObjectStoreTest, ReturnsLastErrorAfterAllAttempts) {
  std::atomic<int> asked = 0;
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    ++asked;
    return connection.Answer(503, FakeS3::Error("SlowDown", ""));
  });
  const absl::Status status = store_.Read(uri_, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("503 SlowDown"), HasSubstr("(tried 4 times)")));
  EXPECT_EQ(asked, 4);
}

TEST_F(ObjectStoreTest, ReportsRetriesWithCauseThrottled) {
  std::vector<std::string> reports;
  StoreOptions options = FastRetryOptions(9);
  options.retried = [&](const std::string& sentence) { reports.push_back(sentence); };
  ObjectStore store(server_.Settings(), options);
  server_.Put("models", uri_.key, "content");
  First(5, "GET", [](RawConnection& connection) { connection.Answer(503, FakeS3::Error("SlowDown", "Later.")); });
  EXPECT_EQ(store.Read(uri_, 100).value(), "content");
  ASSERT_EQ(reports.size(), 1u) << ::testing::PrintToString(reports);
  EXPECT_THAT(reports[0], AllOf(HasSubstr("GET s3://models/runs/"), HasSubstr("HTTP 503 SlowDown: Later.; it is tried again")));
  First(1, "PUT", [](RawConnection&) {});  // hangs up
  EXPECT_TRUE(store.Write(uri_, "new").ok());
  EXPECT_EQ(reports.size(), 1u) << "of the same time";
  server_.SetHook([](const FakeRequest&, RawConnection& connection) { return connection.Answer(403, FakeS3::Error("AccessDenied", "")); });
  EXPECT_FALSE(store.Read(uri_, 100).ok());
  EXPECT_EQ(reports.size(), 1u) << "which is not tried again";
}

TEST_F(ObjectStoreTest, AStopBetweenTriesSaysWhatWentWrongLast) {
  std::stop_source stop;
  StoreOptions options = FastRetryOptions();
  options.stop = stop.get_token();
  options.retried = [&](const std::string&) { stop.request_stop(); };
  ObjectStore store(server_.Settings(), options);
  server_.SetHook(
      [](const FakeRequest&, RawConnection& connection) { return connection.Answer(503, FakeS3::Error("SlowDown", "Later.")); });
  const absl::Status status = store.Read(uri_, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("503 SlowDown: Later."), HasSubstr("stopped before it was tried again")));
}

TEST_F(ObjectStoreTest, ABodyThatIsCutShortIsTakenUpWhereItEnded) {
  const std::string content = "0123456789";
  server_.Put("models", uri_.key, content);
  std::vector<std::string> ranges;
  std::mutex mutex;
  server_.SetHook([&](const FakeRequest& request, RawConnection& connection) {
    const std::lock_guard lock(mutex);
    ranges.push_back(request.headers.contains("range") ? request.headers.at("range") : "");
    if (ranges.size() > 2) return false;
    const size_t from = ranges.size() == 1 ? 0 : 3;
    return connection.Write(
        absl::StrCat("HTTP/1.1 ", from == 0 ? 200 : 206, " X\r\nContent-Length: ", 10 - from, "\r\n\r\n", content.substr(from, 3)));
  });
  const auto fetched = store_.Fetch(uri_, 10, "", folder_ / "f");
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->sha256, Sha256Hex(content));
  EXPECT_EQ(base::ReadWholeFile(folder_ / "f"), content);
  EXPECT_EQ(ranges, (std::vector<std::string>{"", "bytes=3-", "bytes=6-"}));
}

TEST_F(ObjectStoreTest, AServerWithoutRangesIsReadAgainFromTheBeginningIfItIsTheSameObject) {
  const std::string content = "0123456789";
  std::string etag = "\"a\"";
  std::atomic<int> asked = 0;
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    const size_t sent = ++asked % 2 == 1 ? 4 : 10;
    return connection.Write(absl::StrCat("HTTP/1.1 200 X\r\nETag: ", etag, "\r\nContent-Length: 10\r\n\r\n", content.substr(0, sent)));
  });
  const auto fetched = store_.Fetch(uri_, 10, "\"a\"", folder_ / "f");
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(base::ReadWholeFile(folder_ / "f"), content);
  for (const char* listed : {"", "\"b\""}) {
    const absl::Status status = store_.Fetch(uri_, 10, listed, folder_ / "g").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Text(status), AllOf(HasSubstr("starts from the beginning"), Not(HasSubstr("more than"))));
  }
}

TEST_F(ObjectStoreTest, ABodyThatIsAlwaysCutShortLeavesNoFile) {
  server_.SetHook(
      [&](const FakeRequest&, RawConnection& connection) { return connection.Write("HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n"); });
  EXPECT_EQ(store_.Fetch(uri_, 10, "", folder_ / "f").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "f"));
}

TEST_F(ObjectStoreTest, AnObjectThatHasChangedSinceItWasListedIsNotTaken) {
  server_.Put("models", uri_.key, "old");
  const std::string etag = store_.List("models", "runs/", 1)->front().etag;
  server_.Put("models", uri_.key, "new");
  const absl::Status changed = store_.Fetch(uri_, 3, etag, folder_ / "f").status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition) << "for good: another try has the same etag";
  EXPECT_THAT(std::string(changed.message()), AllOf(HasSubstr("HTTP 412"), HasSubstr("changed since it was looked at")));
  EXPECT_EQ(store_.Fetch(uri_, 2, "", folder_ / "f").status().code(), absl::StatusCode::kDataLoss);  // longer than it was
  EXPECT_FALSE(std::filesystem::exists(folder_ / "f"));
}

TEST_F(ObjectStoreTest, SlowBytesAreWaitedForAndSilenceIsNot) {
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    connection.Write("HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n");
    for (const char* byte : {"s", "l", "o", "w", "."}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // tidy-allow: sleep because a slow server is the subject
      connection.Write(byte);
    }
    return true;
  });
  EXPECT_EQ(store_.Read(uri_, 100).value(), "slow.");
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    connection.WaitForClose();
    return true;
  });
  StoreOptions options = FastRetryOptions(1);
  options.limits.stall_seconds = 1;
  ObjectStore impatient(server_.Settings(), options);
  EXPECT_EQ(impatient.Read(uri_, 100).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ObjectStoreTest, AStopEndsATransferThatWaits) {
  std::stop_source stop;
  server_.SetHook([&](const FakeRequest&, RawConnection& connection) {
    stop.request_stop();
    connection.WaitForClose();
    return true;
  });
  StoreOptions options = FastRetryOptions();
  options.stop = stop.get_token();
  ObjectStore store(server_.Settings(), options);
  EXPECT_EQ(store.Read(uri_, 100).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ObjectStoreTest, ExpiredCertificateIsReportedWithTheClockAndNotRetried) {
  const auto message = [&](absl::Duration issued, bool foreign) {
    const absl::Time then = absl::Now() + issued;
    const auto authority = *security::CertificateAuthority::Create({.now = then});
    const auto trusted = foreign ? *security::CertificateAuthority::Create() : authority;
    const auto identity = *authority.Issue("store", {.hosts = {"127.0.0.1"}, .validity = absl::Hours(2), .now = then});
    const kube::testing::RawServer server([](RawConnection&) {}, {identity.certificate_pem, identity.private_key_pem, ""});
    StoreSettings settings = server_.Settings();
    settings.endpoint = server.Url();
    settings.ca_file = folder_.Write("ca.pem", trusted.certificate_pem());
    const absl::Status status = ObjectStore(settings, FastRetryOptions()).Read(uri_, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return Text(status);
  };
  EXPECT_THAT(message(absl::Hours(4), false), AllOf(HasSubstr("not yet valid"), HasSubstr("the clock of this machine says 2")));
  EXPECT_THAT(message(-absl::Hours(24 * 300), false), AllOf(HasSubstr("expired"), HasSubstr("or the clock is ahead")));
  EXPECT_THAT(message(absl::ZeroDuration(), true), Not(HasSubstr("clock")));
}

TEST_F(ObjectStoreTest, AnErrorBehindA200IsAnError) {
  StoreOptions options = FastRetryOptions(2);
  options.part_bytes = 4;
  ObjectStore store(server_.Settings(), options);
  server_.SetHook([&](const FakeRequest& request, RawConnection& connection) {
    if (request.method != "POST" || !request.query.contains("uploadId")) return false;
    return connection.Answer(200, FakeS3::Error("InternalError", "We encountered an internal error."));
  });
  const std::string path = folder_.Write("file", "content");
  const absl::Status status = store.Upload(path, Sha256Hex("content"), uri_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("InternalError"));
  EXPECT_EQ(server_.open_uploads(), 0u);
}

}  // namespace
}  // namespace fusionllm::objectstore
