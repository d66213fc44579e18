#include "lib/kube/client/rest_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/client/testing/pods.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/scripted_transport.h"

namespace fusionllm::kube {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kPods;
using ::testing::Not;
using testing::ScriptedTransport;
using testing::SelfAdvancingClock;

const Resource kNodes = {"", "v1", "nodes", "Node", false};

// Gives out token-1 until it is refused, then token-2, and so on.
class CountingCredentials : public CredentialSource {
 public:
  absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token) override {
    return std::make_shared<const Credentials>(Credentials{.token = absl::StrCat("token-", number_)});
  }
  void Refused(const Credentials& used) override {
    if (used.token == absl::StrCat("token-", number_)) ++number_;
  }

 private:
  int number_ = 1;
};

std::string HeaderOf(const HttpRequest& request, absl::string_view name) {
  for (const HttpHeader& header : request.headers) {
    if (header.name == name) return header.value;
  }
  return "";
}

std::string Refusal(int code, absl::string_view reason, absl::string_view message = "no") {
  return absl::StrCat(R"({"kind":"Status","code":)", code, R"(,"reason":")", reason, R"(","message":")", message, "\"}");
}

class RestClientTest : public ::testing::Test {
 protected:
  RestClientTest() : RestClientTest(RestClientOptions{.user_agent = "fusion-test/1"}) {}
  explicit RestClientTest(RestClientOptions options)
      : client_({transport_, std::make_shared<CountingCredentials>(), "host:6443", "default"}, std::move(options), clock_, &metrics_) {}

  SelfAdvancingClock clock_;
  metrics::Registry registry_{"test", "1"};
  RestMetrics metrics_{registry_};
  const std::shared_ptr<ScriptedTransport> transport_ = std::make_shared<ScriptedTransport>();
  RestClient client_;
  ApiClient& api_ = client_;
};

TEST_F(RestClientTest, EveryRequestSaysWhoAsks) {
  transport_->Then(200, "{}");
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  const HttpRequest request = transport_->requests()[0];
  EXPECT_EQ(request.target, "/api/v1/namespaces/ns/pods/a");
  EXPECT_EQ(HeaderOf(request, "User-Agent"), "fusion-test/1");
  EXPECT_EQ(HeaderOf(request, "Authorization"), "Bearer token-1");
  EXPECT_EQ(HeaderOf(request, "Accept"), "application/json");
  EXPECT_EQ(transport_->unary_limits().timeout, absl::Seconds(30));
  const std::string agent = UserAgent("fusion-operator", "1.2", "pod-a_17");
  EXPECT_THAT(agent, ::testing::AllOf(::testing::StartsWith("fusion-operator/1.2 (linux/"), ::testing::EndsWith(") pod-a_17")));
}

class OneAtATimeTest : public RestClientTest {
 protected:
  OneAtATimeTest() : RestClientTest(RestClientOptions{.max_concurrent_requests = 1}) {}
};

TEST_F(OneAtATimeTest, ARequestWaitsUntilThereIsAPlace) {
  std::stop_source stop;
  // While the first is under way a second one is asked for, and given up; then the first is answered.
  transport_->Then([&](const HttpRequest&) -> absl::StatusOr<HttpResponse> {
    std::jthread second([&] { EXPECT_TRUE(absl::IsCancelled(api_.Get(kPods, {"ns", "b"}, {.stop = stop.get_token()}).status())); });
    stop.request_stop();
    second.join();
    return HttpResponse{200, {}, "{}"};
  });
  transport_->Then(200, "{}");
  EXPECT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  EXPECT_TRUE(api_.Get(kPods, {"ns", "c"}).ok()) << "its place is free again";
  EXPECT_EQ(transport_->requests().size(), 2) << "the second was never sent";
}

TEST_F(RestClientTest, VerbsBecomeTheirRequests) {
  for (int i = 0; i < 6; ++i) transport_->Then(200, "{}");
  const ObjectKey key = {"ns", "a"};
  ASSERT_TRUE(api_.List(kPods, "ns", {.label_selector = "a=b,!c", .resource_version = "0", .limit = 500}).ok());
  ASSERT_TRUE(api_.Create(kPods, "ns", "{\"x\":1}", {.field_manager = "m", .dry_run = true}).ok());
  ASSERT_TRUE(api_.Update(kPods, key, "{}", {.subresource = "status"}).ok());
  ASSERT_TRUE(api_.Apply(kPods, key, "{}", {.field_manager = "m", .subresource = "status"}).ok());
  ASSERT_TRUE(api_.Patch(kPods, key, PatchType::kJson, "[]").ok());
  ASSERT_TRUE(api_.Delete(kPods, key, {.propagation = DeletionPropagation::kForeground, .uid = "u", .resource_version = "7"}).ok());
  std::vector<std::string> lines;
  for (const HttpRequest& request : transport_->requests()) {
    lines.push_back(absl::StrCat(request.method, " ", request.target, " ", HeaderOf(request, "Content-Type"), " ", request.body));
  }
  EXPECT_THAT(
      lines,
      ElementsAre(
          "GET /api/v1/namespaces/ns/pods?labelSelector=a%3Db%2C%21c&resourceVersion=0&limit=500  ",
          "POST /api/v1/namespaces/ns/pods?fieldManager=m&dryRun=All application/json {\"x\":1}",
          "PUT /api/v1/namespaces/ns/pods/a/status application/json {}",
          "PATCH /api/v1/namespaces/ns/pods/a/status?fieldManager=m&force=true application/apply-patch+yaml {}",
          "PATCH /api/v1/namespaces/ns/pods/a application/json-patch+json []",
          "DELETE /api/v1/namespaces/ns/pods/a application/json "
          R"({"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"u"},"propagationPolicy":"Foreground"})"));
}

TEST_F(RestClientTest, AKeyThatIsNoObjectIsRefusedBeforeItIsSent) {
  // DELETE of an empty name would be that of every Pod.
  EXPECT_EQ(api_.Delete(kPods, {"ns", ""}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(api_.Delete(kPods, {"", "a"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(api_.Get(kPods, {"ns", ".."}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(api_.Get(kNodes, {"ns", "n"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(api_.Create(kPods, "", "{}").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(transport_->requests(), ElementsAre());
}

TEST_F(RestClientTest, AnApplyTakesAManagersNameAsLongAsTheServerTakesOne) {
  const auto apply = [this](const std::string& manager) {
    return api_.Apply(kPods, {"ns", "a"}, "{}", {.field_manager = manager}).status();
  };
  EXPECT_EQ(apply("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(apply(std::string(129, 'm')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(transport_->requests(), ElementsAre());
  transport_->Then(200, "{}");
  EXPECT_TRUE(apply(std::string(128, 'm')).ok());
}

TEST_F(RestClientTest, ARefusalCarriesItsReasonAndAuditId) {
  transport_->Then(409, Refusal(409, "AlreadyExists", "pods a already exists"), {{"Audit-Id", "4f3c"}});
  const absl::Status status = api_.Create(kPods, "ns", "{}").status();
  EXPECT_TRUE(IsApiAlreadyExists(status)) << status;
  EXPECT_EQ(ApiErrorOf(status)->audit_id, "4f3c");
}

TEST_F(RestClientTest, ALoggedRefusalNamesItsAuditId) {
  transport_->Then(503, Refusal(503, "ServiceUnavailable", "come back later"), {{"Audit-Id", "4f3c"}});
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(api_.Create(kPods, "ns", "{}").ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("POST /api/v1/namespaces/ns/pods: 503 come back later [audit id 4f3c]\n"));
}

TEST_F(RestClientTest, WaitsWhenTheServerSaysSo) {
  transport_->Then(429, Refusal(429, "TooManyRequests"), {{"Retry-After", "2"}});
  transport_->Then(503, "busy", {{"Retry-After", "1"}});
  transport_->Then(201, "{}");
  const absl::Duration start = clock_.Monotonic();
  EXPECT_TRUE(api_.Create(kPods, "ns", "{}").ok());
  EXPECT_EQ(clock_.Monotonic() - start, absl::Seconds(3));
  EXPECT_EQ(transport_->requests().size(), 3u);
}

TEST_F(RestClientTest, GivesUpAfterTenRetries) {
  for (int i = 0; i < 20; ++i) transport_->Then(429, Refusal(429, "TooManyRequests"), {{"Retry-After", "0"}});
  const absl::Status status = api_.Get(kPods, {"ns", "a"}).status();
  EXPECT_TRUE(IsApiThrottled(status)) << status;
  EXPECT_EQ(transport_->requests().size(), 11u);
}

TEST_F(RestClientTest, DoesNotWaitForHours) {
  transport_->Then(503, "", {{"Retry-After", "3600"}});
  const absl::Status status = api_.Get(kPods, {"ns", "a"}).status();
  EXPECT_TRUE(IsTransient(status)) << status;
  EXPECT_EQ(transport_->requests().size(), 1u);
}

TEST_F(RestClientTest, ManyShortWaitsTogetherAreNotLongEither) {
  for (int i = 0; i < 20; ++i) transport_->Then(429, "", {{"Retry-After", "12"}});
  EXPECT_TRUE(IsApiThrottled(api_.Get(kPods, {"ns", "a"}).status()));
  EXPECT_EQ(transport_->requests().size(), 3u);
}

TEST_F(RestClientTest, FutureResourceVersionFailsImmediately) {
  // It comes with a Retry-After, and a server that was restored from a backup never gets there.
  transport_->Then(
      504,
      R"({"kind":"Status","code":504,"reason":"Timeout","details":{"retryAfterSeconds":1,"causes":[{"reason":"ResourceVersionTooLarge"}]}})",
      {{"Retry-After", "1"}});
  EXPECT_TRUE(IsApiResourceVersionTooLarge(api_.List(kPods, "ns", {.resource_version = "99"}).status()));
  EXPECT_EQ(transport_->requests().size(), 1u);
}

TEST_F(RestClientTest, AServerErrorWithoutRetryAfterIsTheCallers) {
  transport_->Then(500, Refusal(500, "InternalError"));
  EXPECT_TRUE(absl::IsInternal(api_.Create(kPods, "ns", "{}").status()));
  EXPECT_EQ(transport_->requests().size(), 1u);
}

TEST_F(RestClientTest, OnlyReadsAreTriedAgainWhenTheConnectionBreaks) {
  // The object may have been made although the answer was lost.
  transport_->ThenFail(absl::UnavailableError("connection reset"));
  EXPECT_TRUE(absl::IsUnavailable(api_.Create(kPods, "ns", "{}").status()));
  EXPECT_EQ(transport_->requests().size(), 1u);
  transport_->ThenFail(absl::UnavailableError("connection reset"));
  transport_->ThenFail(absl::UnavailableError("connection reset"));
  transport_->Then(200, "{}");
  EXPECT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  for (int i = 0; i < 9; ++i) transport_->ThenFail(absl::UnavailableError("connection reset"));
  EXPECT_TRUE(absl::IsUnavailable(api_.Get(kPods, {"ns", "a"}).status()));
  EXPECT_EQ(transport_->requests().size(), 1u + 3u + 3u);
}

TEST_F(RestClientTest, ADeadlineThatPassedIsTheCallers) {
  // It has waited long enough.
  transport_->ThenFail(absl::DeadlineExceededError("slow"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(api_.Get(kPods, {"ns", "a"}).status()));
  EXPECT_EQ(transport_->requests().size(), 1u);
}

TEST_F(RestClientTest, ARefusedTokenIsRenewedOnce) {
  transport_->Then(401, Refusal(401, "Unauthorized"));
  transport_->Then(201, "{}");
  EXPECT_TRUE(api_.Create(kPods, "ns", "{}").ok());
  EXPECT_EQ(HeaderOf(transport_->requests()[1], "Authorization"), "Bearer token-2");
  transport_->Then(401, Refusal(401, "Unauthorized"));
  transport_->Then(401, Refusal(401, "Unauthorized"));
  EXPECT_TRUE(IsApiUnauthorized(api_.Get(kPods, {"ns", "a"}).status()));
  EXPECT_EQ(transport_->requests().size(), 4u);
}

TEST_F(RestClientTest, NoErrorRepeatsTheToken) {
  transport_->Then(403, Refusal(403, "Forbidden", "you sent Bearer token-1, you fool"));
  const absl::Status status = api_.Get(kPods, {"ns", "a"}).status();
  EXPECT_THAT(status.ToString(absl::StatusToStringMode::kWithEverything), Not(HasSubstr("token-1")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("[redacted]"));
}

TEST_F(RestClientTest, WarningsOfTheServerAreLoggedOnce) {
  const std::vector<HttpHeader> warning = {{"Warning", R"(299 - "v1beta1 is deprecated")"}};
  for (int i = 0; i < 3; ++i) transport_->Then(200, "{}", warning);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("host:6443 warns: v1beta1 is deprecated"));
  EXPECT_EQ(log.find("deprecated"), log.rfind("deprecated"));
}

TEST_F(RestClientTest, NoWarningRepeatsTheToken) {
  transport_->Then(200, "{}", {{"Warning", R"(299 - "token-1 is about to expire")"}});
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("[redacted] is about to expire"), Not(HasSubstr("token-1"))));
}

// A sink whose error says what the server has sent, as that of an ERROR event does.
class Repeating : public WatchSink {
 public:
  explicit Repeating(bool as_api_error) : as_api_error_(as_api_error) {}
  absl::Status OnOpen() override { return absl::OkStatus(); }
  absl::Status OnData(absl::string_view chunk) override {
    return as_api_error_ ? ToStatus(ParseApiError(500, chunk)) : absl::InvalidArgumentError(chunk);
  }

 private:
  const bool as_api_error_;
};

TEST_F(RestClientTest, NoStreamsEndRepeatsTheToken) {
  const std::string said = R"({"kind":"Status","code":410,"reason":"Expired","message":"Bearer token-1 is too old",
    "details":{"causes":[{"reason":"Old","message":"token-1"}]}})";
  for (const bool as_api_error : {true, false}) {
    for (const bool list : {true, false}) {
      transport_->Then(200, said);
      Repeating sink(as_api_error);
      const absl::Status status = list ? api_.StreamList(kPods, "ns", {}, sink) : api_.Watch(kPods, "ns", {}, sink, {});
      EXPECT_EQ(IsApiExpired(status), as_api_error) << status;
      EXPECT_THAT(status.ToString(absl::StatusToStringMode::kWithEverything), AllOf(HasSubstr("[redacted]"), Not(HasSubstr("token-1"))));
      if (as_api_error) {
        EXPECT_EQ(ApiErrorOf(status)->causes.at(0).message, "[redacted]");
      }
    }
  }
}

class Collector : public WatchSink {
 public:
  absl::Status OnOpen() override {
    opened = true;
    return absl::OkStatus();
  }
  absl::Status OnData(absl::string_view chunk) override {
    data.append(chunk.data(), chunk.size());
    return absl::OkStatus();
  }
  absl::Duration IdleTimeout() const override { return data.empty() ? absl::InfiniteDuration() : absl::Seconds(150); }
  bool opened = false;
  std::string data;
};

// As a reflector's, which knows what silence means only once it has seen something.
TEST_F(RestClientTest, HowLongAStreamMayBeSilentIsItsSinksToSay) {
  Collector watch, list;
  transport_->Then(200, "x");
  ASSERT_TRUE(api_.Watch(kPods, "ns", {}, watch, {}).ok());
  EXPECT_EQ(transport_->idle_timeout(), absl::Seconds(150));
  transport_->Then(200, "");
  ASSERT_TRUE(api_.StreamList(kPods, "ns", {}, list).ok());
  EXPECT_EQ(transport_->idle_timeout(), absl::InfiniteDuration());
  transport_->Then(200, "x");
  ASSERT_TRUE(api_.StreamList(kPods, "ns", {}, list).ok());
  EXPECT_EQ(transport_->idle_timeout(), absl::Seconds(150));
}

TEST_F(RestClientTest, TimesOfACallReachTheTransport) {
  Collector sink;
  for (int i = 0; i < 3; ++i) transport_->Then(200, "");
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}, {.timeout = absl::Seconds(7)}).ok());
  EXPECT_EQ(transport_->unary_limits().timeout, absl::Seconds(7));
  ASSERT_TRUE(api_.StreamList(kPods, "ns", {}, sink, {.timeout = absl::Seconds(77)}).ok());
  EXPECT_EQ(transport_->stream_limits().header_timeout, absl::Seconds(77));
  EXPECT_EQ(transport_->stream_limits().body_timeout, absl::Seconds(77));
  ASSERT_TRUE(api_.Watch(kPods, "ns", {.server_timeout = absl::Seconds(40), .header_timeout = absl::Seconds(123)}, sink, {}).ok());
  EXPECT_EQ(transport_->stream_limits().header_timeout, absl::Seconds(123));
  EXPECT_EQ(transport_->stream_limits().body_timeout, absl::Seconds(45));
}

TEST_F(RestClientTest, WatchHandsOnTheStreamAndEnds) {
  transport_->Then(200, "{\"type\":\"BOOKMARK\"}\n");
  Collector sink;
  EXPECT_TRUE(
      api_.Watch(kPods, "ns", {.label_selector = "a=b", .resource_version = "5", .server_timeout = absl::Seconds(400)}, sink, {}).ok());
  EXPECT_TRUE(sink.opened);
  EXPECT_EQ(sink.data, "{\"type\":\"BOOKMARK\"}\n");
  EXPECT_EQ(transport_->requests()[0].target,
            "/api/v1/namespaces/ns/pods?watch=true&labelSelector=a%3Db&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=400");
  EXPECT_EQ(transport_->stream_limits().body_timeout, absl::Seconds(405));
  EXPECT_EQ(transport_->stream_limits().header_timeout, absl::Seconds(60));
}

TEST_F(RestClientTest, ARefusedWatchIsAnErrorAndIsNotTriedAgain) {
  transport_->Then(410, Refusal(410, "Expired"));
  Collector sink;
  EXPECT_TRUE(IsApiExpired(api_.Watch(kPods, "ns", {}, sink, {})));
  transport_->Then(429, Refusal(429, "TooManyRequests"), {{"Retry-After", "1"}});
  const absl::Status throttled = api_.Watch(kPods, "ns", {}, sink, {});
  EXPECT_TRUE(IsApiThrottled(throttled));
  EXPECT_EQ(RetryAfter(throttled), absl::Seconds(1));
  EXPECT_EQ(transport_->requests().size(), 2u);
  EXPECT_FALSE(sink.opened);
}

TEST_F(RestClientTest, ARefusedTokenOfAWatchIsRenewedOnce) {
  transport_->Then(401, "");
  transport_->Then(200, "x");
  Collector sink;
  EXPECT_TRUE(api_.Watch(kPods, "ns", {}, sink, {}).ok());
  EXPECT_EQ(HeaderOf(transport_->requests()[1], "Authorization"), "Bearer token-2");
}

TEST_F(RestClientTest, ALongListIsHandedOnAsItComes) {
  transport_->Then(429, "", {{"Retry-After", "0"}});
  transport_->ThenFail(absl::UnavailableError("connection reset"));
  transport_->Then(200, "{\"items\":[]}");
  Collector sink;
  const absl::Status status = api_.StreamList(kPods, "ns", {.limit = 5}, sink);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sink.data, "{\"items\":[]}");
  EXPECT_EQ(transport_->requests()[2].target, "/api/v1/namespaces/ns/pods?limit=5");
  EXPECT_TRUE(transport_->stream_limits().compressed);
  transport_->Then(410, Refusal(410, "Expired"));
  EXPECT_TRUE(IsApiExpired(api_.StreamList(kPods, "ns", {}, sink)));
}

TEST_F(RestClientTest, AListThatBreaksInTheMiddleIsNotBegunAgain) {
  // The sink has half of it.
  class Breaking : public Collector {
   public:
    absl::Status OnData(absl::string_view) override { return absl::UnavailableError("connection reset"); }
  } sink;
  transport_->Then(200, "{");
  EXPECT_TRUE(absl::IsUnavailable(api_.StreamList(kPods, "ns", {}, sink)));
  EXPECT_EQ(transport_->requests().size(), 1u);
}

TEST_F(RestClientTest, MetadataAloneCanBeAskedFor) {
  transport_->Then(200, "{}");
  transport_->Then(200, "");
  transport_->Then(200, "{}");
  Collector sink;
  ASSERT_TRUE(api_.List(kPods, "", {.metadata_only = true}).ok());
  ASSERT_TRUE(api_.Watch(kPods, "", {.metadata_only = true}, sink, {}).ok());
  ASSERT_TRUE(api_.GetMetadata(kPods, {"ns", "a"}).ok());
  EXPECT_EQ(HeaderOf(transport_->requests()[0], "Accept"), "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
  EXPECT_EQ(HeaderOf(transport_->requests()[1], "Accept"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
  EXPECT_EQ(HeaderOf(transport_->requests()[2], "Accept"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
  EXPECT_EQ(transport_->requests()[2].target, "/api/v1/namespaces/ns/pods/a");
  EXPECT_EQ(api_.GetMetadata(kPods, {"ns", ""}).status().code(), absl::StatusCode::kInvalidArgument) << "that would be a list";
}

TEST_F(RestClientTest, MetricsHaveTheNamesOfClientGo) {
  transport_->Then(200, "{}");
  transport_->ThenFail(absl::DeadlineExceededError("slow"));
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  EXPECT_FALSE(api_.Create(kPods, "ns", "{}").ok());
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(R"(rest_client_requests_total{code="200",host="host:6443",method="GET"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(rest_client_requests_total{code="<error>",host="host:6443",method="POST"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(rest_client_request_duration_seconds_count{host="host:6443",verb="GET"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(rest_client_rate_limiter_duration_seconds_count{host="host:6443",verb="GET"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(rest_client_response_size_bytes_count{host="host:6443",verb="GET"} 1)"));
}

TEST_F(RestClientTest, StopEndsTheWaitForARetry) {
  std::stop_source stop;
  transport_->Then([&](const HttpRequest&) {
    stop.request_stop();
    return HttpResponse{429, {{"Retry-After", "20"}}, ""};
  });
  EXPECT_TRUE(absl::IsCancelled(api_.Get(kPods, {"ns", "a"}, {.stop = stop.get_token()}).status()));
}

TEST_F(RestClientTest, TheServersClockIsComparedWithOursFromTheCallsBeginningToItsEnd) {
  const auto call = [this](absl::Duration ahead) {
    transport_->Then([this, ahead](const HttpRequest&) {
      const std::string date = absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", clock_.Now() + ahead, absl::UTCTimeZone());
      clock_.Advance(absl::Seconds(1.5));
      return HttpResponse{200, {{"Date", date}}, "{}"};
    });
    EXPECT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
    return api_.ServerClockSkew();
  };
  EXPECT_EQ(api_.ServerClockSkew(), std::nullopt);
  EXPECT_EQ(call(absl::ZeroDuration()), absl::ZeroDuration()) << "the second in which it was sent was over when the answer came";
  EXPECT_EQ(call(absl::Seconds(20)), absl::Seconds(18));
}

class LimitedRestClientTest : public RestClientTest {
 protected:
  LimitedRestClientTest()
      : RestClientTest(RestClientOptions{.requests_per_second = 2, .burst = 3, .max_response_bytes = 1234, .max_list_bytes = 10}) {}
};

TEST_F(LimitedRestClientTest, SoDoesTheLengthOfAnAnswer) {
  transport_->Then(200, "{}");
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  EXPECT_EQ(transport_->unary_limits().max_response_bytes, 1234u);
}

TEST_F(LimitedRestClientTest, AnEndlessListIsCutOff) {
  Collector sink;
  transport_->Then(200, "0123456789");
  EXPECT_TRUE(api_.StreamList(kPods, "ns", {}, sink).ok());
  transport_->Then(200, "0123456789a");
  EXPECT_EQ(api_.StreamList(kPods, "ns", {}, sink).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(LimitedRestClientTest, RequestsBeyondTheBurstWaitForTheirTurn) {
  for (int i = 0; i < 8; ++i) transport_->Then(200, "{}");
  const absl::Duration start = clock_.Monotonic();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());  // no time passes
  EXPECT_EQ(clock_.Monotonic(), start);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  EXPECT_EQ(clock_.Monotonic() - start, absl::Seconds(2.5));
}

class SlowRestClientTest : public RestClientTest {
 protected:
  SlowRestClientTest() : RestClientTest(RestClientOptions{.requests_per_second = 0.5, .burst = 1}) {}
};

TEST_F(SlowRestClientTest, ALongWaitForOnesTurnIsLogged) {
  for (int i = 0; i < 2; ++i) transport_->Then(200, "{}");
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(api_.Get(kPods, {"ns", "a"}).ok());
  ASSERT_TRUE(api_.Get(kPods, {"ns", "b"}).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("client-side throttling: GET /api/v1/namespaces/ns/pods/b waited"));
}

}  // namespace
}  // namespace fusionllm::kube
