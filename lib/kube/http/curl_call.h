// One transfer by libcurl, from the options of a handle to its result: what CurlTransport is made of.
//
// A CurlHandle keeps its connections open between calls; one call at a time. Not thread-safe.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/kube/http/curl_transport.h"

namespace fusionllm::kube {

class CurlHandle {
 public:
  // Null when memory is out.
  static std::unique_ptr<CurlHandle> Make(std::shared_ptr<const TlsMaterial> material);
  ~CurlHandle();
  CurlHandle(const CurlHandle&) = delete;
  CurlHandle& operator=(const CurlHandle&) = delete;

  CURL* easy() const { return easy_; }
  CURLM* multi() const { return multi_; }
  const std::shared_ptr<const TlsMaterial>& material() const { return material_; }

 private:
  CurlHandle(CURL* easy, CURLM* multi, std::shared_ptr<const TlsMaterial> material)
      : easy_(easy), multi_(multi), material_(std::move(material)) {}
  CURL* const easy_;
  CURLM* const multi_;
  const std::shared_ptr<const TlsMaterial> material_;
};

struct CallLimits {
  absl::Duration total_timeout = absl::InfiniteDuration();   // from the call to the last byte
  absl::Duration header_timeout = absl::InfiniteDuration();  // from the call to the status line
  absl::Duration body_timeout = absl::InfiniteDuration();    // from the status line to the last byte
  size_t max_body_bytes = 0;                                 // of what is not handed to a sink
  bool compressed = true;
};

class CurlCall {
 public:
  // `sink` null: the whole answer is collected. Everything given must outlive Run().
  CurlCall(CurlHandle& handle, const CurlTransportOptions& options, const ServerUrl& server, const HttpRequest& request,
           const CallLimits& limits, StreamSink* sink);
  ~CurlCall();
  CurlCall(const CurlCall&) = delete;
  CurlCall& operator=(const CurlCall&) = delete;

  // Once. Blocks until the transfer is over.
  absl::StatusOr<HttpResponse> Run(const std::stop_token& stop);

 private:
  absl::Status SetUp();
  void SetUpTls();
  void SetUpBody();
  absl::Status SetUpHeaders();
  // Turns the multi handle until the transfer has ended by itself; an error is ours: a deadline, a stop, a sink.
  absl::StatusOr<CURLcode> Turn(const std::stop_token& stop);
  absl::Status CheckDeadlines(absl::Duration now) const;
  bool InHandshake() const;
  absl::Duration NextDeadline() const;
  absl::Status ErrorOf(CURLcode code) const;
  std::string Where() const;
  absl::Status TakeHeader(absl::string_view line);
  absl::Status TakeBody(absl::string_view chunk);
  absl::Status Open();

  static size_t OnHeader(char* data, size_t size, size_t count, void* self);
  static size_t OnBody(char* data, size_t size, size_t count, void* self);
  static size_t OnRead(char* buffer, size_t size, size_t count, void* self);
  static CURLcode OnTls(CURL* easy, void* context, void* self);
  static int OnSocket(void* self, curl_socket_t socket, curlsocktype purpose);

  CurlHandle& handle_;
  const CurlTransportOptions& options_;
  const ServerUrl& server_;
  const HttpRequest& request_;
  const CallLimits limits_;
  StreamSink* const sink_;
  curl_slist* headers_ = nullptr;
  curl_slist* connect_to_ = nullptr;
  char error_text_[CURL_ERROR_SIZE] = {};
  size_t body_sent_ = 0;

  absl::Duration start_;
  absl::Duration headers_at_;  // the status line's time
  absl::Duration last_data_;
  absl::Duration handshake_start_;  // zero before it
  absl::Duration idle_timeout_ = absl::InfiniteDuration();
  bool headers_done_ = false;
  bool opened_ = false;  // the sink has it
  size_t header_bytes_ = 0;
  HttpResponse response_;
  absl::Status failure_;  // what a callback found
};

}  // namespace fusionllm::kube
