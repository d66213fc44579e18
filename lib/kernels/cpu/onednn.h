// What the back end takes from oneDNN beside convolutions (direct_convolution.h): onednn.cc. Portable builds have no oneDNN;
// without_onednn.cc stands in for both with plain loops, many times slower: such programs are carried to machines whose GPU computes.
#pragma once

#include <string>

namespace fusionllm::kernels::cpu {

// "oneDNN 2.6.3 (AVX-512)", or that there is none.
std::string DescribeOneDnn();

// While it lives, oneDNN calls from this thread use no other thread.
class SingleThreadedOneDnn {
 public:
  SingleThreadedOneDnn();
  ~SingleThreadedOneDnn();

 private:
  [[maybe_unused]] int before_;
};

}  // namespace fusionllm::kernels::cpu
