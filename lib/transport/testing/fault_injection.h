// Breaks the outgoing streams of endpoints on demand. Set EndpointOptions::decorate_stream to Decorator().
//
// Thread-safe. Outlives the endpoints that use it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/transport/frame_stream.h"

namespace fusionllm::transport::testing {

class FaultInjector {
 public:
  std::function<std::unique_ptr<FrameStream>(absl::string_view, std::unique_ptr<FrameStream>)> Decorator() {
    return [this](absl::string_view, std::unique_ptr<FrameStream> inner) { return std::make_unique<Stream>(this, std::move(inner)); };
  }

  // Breaks every live stream, once. Returns how many there were.
  size_t CutAll() {
    base::MutexLock lock(mu_);
    for (Stream* stream : live_) stream->inner->Cancel();
    return live_.size();
  }
  // From now on nothing gets out, as if the process were dead or the cable cut.
  void Blackhole() {
    base::MutexLock lock(mu_);
    blackholed_ = true;
    for (Stream* stream : live_) stream->inner->Cancel();
  }
  // Flips one bit of the payload of the next DATA frame that has any.
  void CorruptNextData() {
    base::MutexLock lock(mu_);
    corrupt_next_ = true;
  }

 private:
  struct Stream : FrameStream {
    Stream(FaultInjector* owner, std::unique_ptr<FrameStream> inner) : owner(owner), inner(std::move(inner)) {
      base::MutexLock lock(owner->mu_);
      owner->live_.insert(this);
      if (owner->blackholed_) this->inner->Cancel();
    }
    ~Stream() override {
      base::MutexLock lock(owner->mu_);
      owner->live_.erase(this);
    }
    bool Write(const Frame& frame) override {
      bool corrupt = false;
      {
        base::MutexLock lock(owner->mu_);
        if (owner->blackholed_) return false;
        if (frame.type == FrameType::kData && frame.payload_bytes() > 0) corrupt = std::exchange(owner->corrupt_next_, false);
      }
      if (!corrupt) return inner->Write(frame);
      Frame bad = frame;
      tensor::Buffer copy(frame.payload[0].size());
      std::copy_n(frame.payload[0].data(), copy.size(), copy.data());
      copy.data()[copy.size() / 2] ^= std::byte{1};
      bad.payload[0] = Payload::Of(std::move(copy));
      return inner->Write(bad);
    }
    bool Read(Frame* frame) override { return inner->Read(frame); }
    void CloseWrites() override { inner->CloseWrites(); }
    void Cancel() override { inner->Cancel(); }
    absl::Status Finish() override { return inner->Finish(); }

    FaultInjector* owner;
    std::unique_ptr<FrameStream> inner;
  };

  base::Mutex mu_;
  std::set<Stream*> live_ ABSL_GUARDED_BY(mu_);
  bool blackholed_ ABSL_GUARDED_BY(mu_) = false;
  bool corrupt_next_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace fusionllm::transport::testing
