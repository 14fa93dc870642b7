// SPDX-License-Identifier: Apache-2.0
//
// Golden vectors: what every version on every machine must compute, made by the independent
// tests/python/identity_reference.py. If a test here fails, stored blocks would be lost: undo the
// change of the code, not of the file.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/hex.h"
#include "block_id/block_hasher.h"
#include "block_id/namespace.h"
#include "support/json.h"

namespace ucmstore {
namespace {

using test::Json;

Json ReadVectors() {
  std::ifstream file(UCMSTORE_TEST_DATA_DIR "/identity_vectors.json");
  return Json::Read(std::string(std::istreambuf_iterator<char>(file), {}));
}

Namespace MakeNamespace(const Json& json) {
  std::map<std::string, std::string> fields;
  for (const auto& [name, value] : json["fields"].object()) fields[name] = value.bytes();
  return Namespace::FromFields(fields).value();
}

std::vector<std::string> IdsOf(const Json& json) {
  std::vector<std::string> ids;
  ids.reserve(json["ids"].array().size());
  for (const Json& id : json["ids"].array()) ids.push_back(id.text());
  return ids;
}

std::vector<std::string> Hex(const std::vector<BlockId>& ids) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const BlockId& id : ids) texts.push_back(ToHex(id));
  return texts;
}

std::uint32_t Number(const Json& json) { return static_cast<std::uint32_t>(json.number()); }

TEST(IdentityVectors, Namespaces) {
  const Json vectors = ReadVectors();
  ASSERT_GE(vectors["namespaces"].array().size(), 7U);
  for (const Json& json : vectors["namespaces"].array()) {
    const Namespace name_space = MakeNamespace(json);
    EXPECT_EQ(name_space.text(), json["text"].bytes());
    EXPECT_EQ(ToHex(name_space.fingerprint()), json["fingerprint"].text());
    EXPECT_EQ(name_space.label(), json["label"].text());
  }
}

TEST(IdentityVectors, Derives) {
  const Json vectors = ReadVectors();
  ASSERT_GE(vectors["derives"].array().size(), 8U);
  for (const Json& json : vectors["derives"].array()) {
    const Namespace name_space =
        MakeNamespace(vectors["namespaces"].array().at(Number(json["namespace"])));
    const std::string hashes = json["hashes"].bytes();
    const std::vector<std::uint8_t> bytes(hashes.begin(), hashes.end());
    const std::vector<std::string> expected = IdsOf(json);
    std::vector<BlockId> ids(expected.size());
    const Status status = name_space.Derive(bytes, Number(json["width"]), Number(json["every"]),
                                            json["tag"].bytes(), ids);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(Hex(ids), expected);
  }
}

TEST(IdentityFaults, H01_EveryProcessChainsTheGoldenIds) {
  const Json vectors = ReadVectors();
  ASSERT_GE(vectors["chains"].array().size(), 13U);
  for (const Json& json : vectors["chains"].array()) {
    const Namespace name_space =
        MakeNamespace(vectors["namespaces"].array().at(Number(json["namespace"])));
    const auto maybe = [&json](const char* name) -> std::optional<std::string> {
      if (json[name].IsNull()) return std::nullopt;
      return json[name].bytes();
    };
    const auto salt = maybe("salt");
    const auto adapter = maybe("adapter");
    const auto hasher =
        BlockHasher::Make(name_space, Number(json["block_tokens"]), {salt, adapter}).value();

    std::vector<std::int64_t> tokens;
    for (const Json& token : json["tokens"].array()) tokens.push_back(token.number());
    std::vector<std::string> contents;
    for (const Json& item : json["media"].array()) contents.push_back(item["content_hash"].bytes());
    std::vector<MediaItem> media;
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const Json& item = json["media"].array()[i];
      media.push_back({contents[i], Number(item["offset"]), Number(item["length"])});
    }

    const std::vector<std::string> expected = IdsOf(json);
    ASSERT_EQ(expected.size(), tokens.size() / hasher.block_tokens());
    std::vector<BlockId> ids(expected.size());
    const Status status = hasher.Hash(tokens, media, {}, ids);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(Hex(ids), expected);
  }
}

}  // namespace
}  // namespace ucmstore
