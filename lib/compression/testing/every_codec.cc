#include "lib/compression/testing/every_codec.h"

#include "lib/compression/registry.h"

namespace fusionllm::compression::testing {

std::vector<std::string> EveryCodec(std::initializer_list<const char*> selecting) {
  std::vector<std::string> texts;
  for (const Codec* codec : Codecs()) {
    if (codec->dense() != nullptr) texts.emplace_back(codec->traits.name);
  }
  texts.insert(texts.end(), selecting.begin(), selecting.end());
  return texts;
}

}  // namespace fusionllm::compression::testing
