// libFuzzer's entry points for a decoder (fuzz.h). With FUSIONLLM_FUZZ_SEEDS=FOLDER the program writes its seeds there before it starts,
// and its words to FOLDER.dict.
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "lib/base/testing/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fusionllm::base::TheFuzzTarget().accepts(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("FUSIONLLM_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : fusionllm::base::TheFuzzTarget().seeds()) {
    std::ofstream(std::filesystem::path(folder) / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
  }
  std::ofstream words(std::string(folder) + ".dict", std::ios::binary);
  for (const std::string& word : fusionllm::base::TheFuzzTarget().words()) {
    words << '"';
    for (const unsigned char c : word)
      words << "\\x"
            << "0123456789abcdef"[c >> 4] << "0123456789abcdef"[c & 15];
    words << "\"\n";
  }
  return 0;
}
