#include "operator/placement/plan_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/http/curl_transport.h"

namespace fusionllm::op::placement {
namespace {

constexpr char kPlanMethod[] = "/fusionllm.v1.Scheduler/Plan";
// Fields of PlanRequest and PlanResponse.
constexpr int kJobDocument = 1, kProfilesDocument = 2, kPlanDocument = 1;
constexpr int kText = 2;               // protobuf's wire type of what has a length
constexpr size_t kFrameHeadBytes = 5;  // whether it is compressed, and its length, before each message
constexpr size_t kMaxAnswerBytes = 8 << 20;

void AppendNumber(uint64_t number, std::string& out) {
  for (; number >= 128; number >>= 7) out.push_back(static_cast<char>(number | 128));
  out.push_back(static_cast<char>(number));
}

void AppendText(int field, const std::string& text, std::string& out) {
  AppendNumber(static_cast<uint64_t>(field) << 3 | kText, out);
  AppendNumber(text.size(), out);
  out += text;
}

// Takes a number off the front. False: there is none.
bool TakeNumber(absl::string_view& bytes, uint64_t& number) {
  number = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

// gRPC writes what is no printable ASCII as %XX.
std::string Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) && absl::ascii_isxdigit(text[i + 2]);
    out += escaped ? absl::HexStringToBytes(text.substr(i + 1, 2)) : std::string(1, text[i]);
    if (escaped) i += 2;
  }
  return out;
}

absl::StatusOr<std::string> Read(const kube::HttpResponse& response) {
  int code = 0;
  if (response.code != 200 || !absl::SimpleAtoi(response.Header("grpc-status"), &code)) {
    return absl::UnavailableError(absl::StrCat("no gRPC service answers there: HTTP ", response.code));
  }
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), Unescape(response.Header("grpc-message")));
  return DecodePlanAnswer(response.body);
}

}  // namespace

std::string EncodePlanCall(const PlacementQuery& query) {
  std::string message;
  AppendText(kJobDocument, query.job_document, message);
  AppendText(kProfilesDocument, query.profiles_document, message);
  std::string body(kFrameHeadBytes, '\0');
  for (size_t i = 1; i < kFrameHeadBytes; ++i) body[i] = static_cast<char>(message.size() >> (8 * (kFrameHeadBytes - 1 - i)));
  return body + message;
}

absl::StatusOr<std::string> DecodePlanAnswer(absl::string_view body) {
  const absl::Status bad = absl::InvalidArgumentError("the answer is no PlanResponse");
  if (body.size() < kFrameHeadBytes || body[0] != 0) return bad;
  uint64_t size = 0;
  for (size_t i = 1; i < kFrameHeadBytes; ++i) size = size << 8 | static_cast<unsigned char>(body[i]);
  body.remove_prefix(kFrameHeadBytes);
  if (size != body.size()) return bad;
  std::string document;
  while (!body.empty()) {
    // A newer service may say more; what has no length it has no reason to say.
    uint64_t key = 0, length = 0;
    if (!TakeNumber(body, key) || (key & 7) != kText || !TakeNumber(body, length) || length > body.size()) return bad;
    if (key >> 3 == kPlanDocument) document = std::string(body.substr(0, length));
    body.remove_prefix(length);
  }
  return document;
}

HintCache::Ask SchedulerPlanCall(const std::string& address) {
  return [address](const PlacementQuery& query, absl::Duration limit, std::stop_token stop) -> absl::StatusOr<std::string> {
    // Made again for each call: they are rare, and the scheduler may have been started again.
    FUSIONLLM_ASSIGN_OR_RETURN(const auto transport,
                               kube::CurlTransport::Make({.server = absl::StrCat("http://", address), .http2 = true}));
    // The service gives up in time: it ends a search that is not waited for.
    const std::string timeout = absl::StrCat(absl::ToInt64Milliseconds(limit), "m");
    const kube::HttpRequest request{.method = "POST",
                                    .target = kPlanMethod,
                                    .headers = {{"Content-Type", "application/grpc"}, {"TE", "trailers"}, {"grpc-timeout", timeout}},
                                    .body = EncodePlanCall(query)};
    const kube::UnaryLimits limits{.timeout = limit + absl::Seconds(1), .max_response_bytes = kMaxAnswerBytes};
    FUSIONLLM_ASSIGN_OR_RETURN(const kube::HttpResponse response, transport->Send(request, limits, std::move(stop)));
    return Read(response);
  };
}

}  // namespace fusionllm::op::placement
