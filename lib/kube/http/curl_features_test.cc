// The libcurl that is linked, shared or static (tools/install-static.sh), has what calls to API servers, object stores and the scheduler
// ask for: what it was built without it refuses when it is called, if at all.
#include <curl/curl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fusionllm::kube {
namespace {

using ::testing::IsSupersetOf;
using ::testing::StartsWith;

TEST(CurlFeatures, AreThoseThatCallsNeed) {
  const curl_version_info_data& info = *curl_version_info(CURLVERSION_NOW);
  const auto has = [&info](int feature) { return (info.features & feature) != 0; };
  EXPECT_TRUE(has(CURL_VERSION_SSL));
  EXPECT_TRUE(has(CURL_VERSION_LIBZ)) << "lists come compressed";
  EXPECT_TRUE(has(CURL_VERSION_HTTP2)) << "the scheduler beside the operator speaks nothing else";
  EXPECT_TRUE(has(CURL_VERSION_IPV6));
  EXPECT_TRUE(has(CURL_VERSION_ASYNCHDNS)) << "else a resolver that hangs holds up what has a deadline";
  EXPECT_TRUE(has(CURL_VERSION_HTTPS_PROXY));
  EXPECT_TRUE(has(CURL_VERSION_THREADSAFE));
  // Certificates and keys from memory, and the callback at the beginning of a handshake, are of this one.
  EXPECT_THAT(std::string(info.ssl_version), StartsWith("OpenSSL/"));
  std::vector<std::string> protocols;
  for (const char* const* protocol = info.protocols; *protocol != nullptr; ++protocol) protocols.emplace_back(*protocol);
  EXPECT_THAT(protocols, IsSupersetOf({"http", "https"}));
}

TEST(CurlFeatures, AreNotLeftOutOfItsOptions) {
  CURL* const easy = curl_easy_init();
  ASSERT_NE(easy, nullptr);
  std::string pem = "-----BEGIN CERTIFICATE-----";
  curl_blob blob = {pem.data(), pem.size(), CURL_BLOB_COPY};
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, "aws:amz:region:s3"), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_SSLCERT_BLOB, &blob), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_SSLKEY_BLOB, &blob), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_PROXY, "socks5h://proxy:3128"), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "gzip"), CURLE_OK);
  EXPECT_EQ(curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE)), CURLE_OK);
  curl_easy_cleanup(easy);
}

}  // namespace
}  // namespace fusionllm::kube
