// The cluster's authority in its folder, and who is taken for a node.
#include "control/controller/registrar.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/files/files.hpp"

namespace tutti::controller {
namespace {

const Instant now(std::chrono::seconds(1'800'000'000));

struct RegistrarTest : testing::Test {
  std::string folder;

  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-registrar-XXXXXX").string();
    folder = mkdtemp(path.data());
    ASSERT_TRUE(make_authority_file(folder, now).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Authorities authorities() const { return **read_authorities(folder); }
  std::string text(const std::string& name) const {
    return files::read_file(folder + "/" + name, 1 << 20)->value_or("");
  }
  Registrar open() const {
    return *Registrar::open(authorities(), {.folder = folder, .addresses = {"127.0.0.1"}});
  }
};

pki::PublicKey new_key() { return *pki::read_request(*pki::make_request(*pki::make_key())); }

TEST_F(RegistrarTest, TheAuthorityIsItsOwnersAloneAndNeverOverwritten) {
  struct stat found {};
  ASSERT_EQ(::stat((folder + "/authority.pem").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0600u);
  const std::string before = text("authority.pem");
  ASSERT_TRUE(make_authority_file(folder, now).ok());
  EXPECT_EQ(text("authority.pem"), before);
  const std::string trusted = authorities().trusted();
  EXPECT_EQ(text("ca.pem"), trusted);
  EXPECT_EQ(text("ca.pem").find("PRIVATE"), std::string::npos);
}

TEST_F(RegistrarTest, ADamagedAuthorityIsSaidAndKept) {
  std::ofstream(folder + "/authority.pem") << "damaged";
  EXPECT_TRUE(make_authority_file(folder, now).ok());
  const auto read = read_authorities(folder);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().remedy().find("copy of the folder"), std::string::npos);
  EXPECT_EQ(text("authority.pem"), "damaged");
}

// A letter of its name: by that the authority is another one, which nobody has heard of.
TEST_F(RegistrarTest, AnAuthorityOfWhichABitIsAnotherIsSaidAndKept) {
  static_cast<void>(authorities());
  const std::string shown = text("ca.pem");
  const std::string sound = text("authority.pem");
  const std::size_t begin = sound.find("-----BEGIN CERTIFICATE-----");
  ASSERT_NE(begin, std::string::npos);
  const std::size_t line = sound.find('\n', begin) + 1;
  // In the second line of the certificate, where the issuer's name stands.
  std::string damaged = sound;
  char& letter = damaged[line + 100];
  letter = letter == 'A' ? 'B' : 'A';
  std::ofstream(folder + "/authority.pem") << damaged;
  const auto read = read_authorities(folder);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().text().find(folder + "/authority.pem"), std::string::npos) << read.error().text();
  EXPECT_NE(read.error().remedy().find("copy of the folder"), std::string::npos);
  EXPECT_EQ(text("authority.pem"), damaged);
  EXPECT_EQ(text("ca.pem"), shown) << "whoever trusts that one goes on";
}

TEST_F(RegistrarTest, TheEndOfTheAuthorityIsToldBeforeItComes) {
  Registrar registrar = open();
  const Instant end = now + pki::authority_life;
  EXPECT_EQ(registrar.ends_at(), end);
  EXPECT_EQ(registrar.standing(now).until, end);
  EXPECT_EQ(registrar.ends_soon(now), "");
  EXPECT_EQ(registrar.ends_soon(end - authority_end_told_before - 1s), "");
  const std::string told = registrar.ends_soon(end - authority_end_told_before);
  EXPECT_NE(told.find(format_instant(end)), std::string::npos) << told;
  EXPECT_NE(told.find("ca rotate"), std::string::npos) << told;
  EXPECT_NE(registrar.ends_soon(end + 1h), "");
  ASSERT_TRUE(make_next_authority(folder, end - 24h).ok());
  ASSERT_TRUE(use_next_authority(folder).ok());
  ASSERT_TRUE(registrar.use(authorities()).ok());
  EXPECT_EQ(registrar.ends_soon(end - 24h), "") << "another one has followed";
}

TEST_F(RegistrarTest, AnAuthorityFollowsAnotherInSteps) {
  const Authorities before = authorities();
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  const Authorities beside = authorities();
  EXPECT_EQ(beside.signer.certificate, before.signer.certificate);
  EXPECT_NE(beside.next, "");
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  EXPECT_EQ(authorities().next, beside.next) << "there is one already";
  ASSERT_TRUE(use_next_authority(folder).ok());
  const Authorities after = authorities();
  EXPECT_EQ(after.signer.certificate, beside.next);
  EXPECT_EQ(after.old, before.signer.certificate);
  EXPECT_EQ(pki::read_certificate(after.signer.certificate)->name, pki::read_certificate(after.old)->name);
  EXPECT_FALSE(make_next_authority(folder, now).ok()) << "the one before is trusted still";
  ASSERT_TRUE(drop_old_authority(folder).ok());
  EXPECT_EQ(authorities().trusted(), beside.next);
}

// By a disk that is full, or that does not answer: whoever asks again asks for the same step.
TEST_F(RegistrarTest, AStepThatWasCutShortIsTakenAgain) {
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  const Authorities before = authorities();
  std::filesystem::remove(folder + "/ca.pem");
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  EXPECT_EQ(authorities().next, before.next);
  EXPECT_EQ(text("ca.pem"), before.trusted());
  std::filesystem::rename(folder + "/authority.pem", folder + "/authority-old.pem");
  ASSERT_TRUE(use_next_authority(folder).ok());
  ASSERT_TRUE(use_next_authority(folder).ok());
  EXPECT_EQ(authorities().signer.certificate, before.next);
  EXPECT_EQ(authorities().old, before.signer.certificate);
  ASSERT_TRUE(drop_old_authority(folder).ok());
  ASSERT_TRUE(drop_old_authority(folder).ok());
}

TEST_F(RegistrarTest, AStepThatWasCutShortIsDoneAtTheNextStart) {
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  const Authorities before = authorities();
  std::filesystem::rename(folder + "/authority.pem", folder + "/authority-old.pem");
  ASSERT_TRUE(make_authority_file(folder, now).ok()) << "an init in between makes no third one";
  EXPECT_EQ(authorities().signer.certificate, before.next);
  EXPECT_EQ(authorities().old, before.signer.certificate);
}

TEST_F(RegistrarTest, OnlyWhoIsKnownWithThatKeyIsANode) {
  Registrar registrar = open();
  const pki::PublicKey key = new_key();
  const auto made = registrar.sign("n1", key, now);
  ASSERT_TRUE(made.ok());
  const auto identity = *pki::read_certificate(made->certificate);
  EXPECT_NE(registrar.check(identity, now).error().message().find("not known"), std::string::npos);
  driver::Delivery news;
  news.members["n1"] = made->member;
  registrar.hear(news);
  EXPECT_TRUE(registrar.check(identity, now).ok());
  EXPECT_FALSE(registrar.check(identity, now + 24h).ok()) << "expired";
  EXPECT_TRUE(registrar.check(identity, now - 1h).ok()) << "the clock was set back";
  const auto other = *pki::read_certificate(registrar.sign("n1", new_key(), now)->certificate);
  EXPECT_NE(registrar.check(other, now).error().message().find("another server"), std::string::npos);
  news.members["n1"]->revoked = true;
  registrar.hear(news);
  EXPECT_NE(registrar.check(identity, now).error().message().find("revoked"), std::string::npos);
  driver::Delivery anew;
  anew.all_members = true;
  registrar.hear(anew);
  EXPECT_TRUE(registrar.members().empty());
}

TEST_F(RegistrarTest, ThoseWhoAreBehindAreNamedUnlessNobodyWaitsForThem) {
  Registrar registrar = open();
  const pki::PublicKey key = new_key();
  driver::Delivery news;
  for (const char* name : {"a", "b", "c"}) news.members[name] = registrar.sign(name, key, now)->member;
  news.members["c"]->revoked = true;
  registrar.hear(news);
  const auto behind = [&](Instant when) { return registrar.standing(when).behind; };
  EXPECT_TRUE(behind(now).empty());
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  ASSERT_TRUE(registrar.use(authorities()).ok());
  EXPECT_EQ(behind(now), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(behind(now + 24h).empty()) << "expired";
  news.members["a"] = registrar.sign("a", key, now)->member;
  registrar.hear(news);
  EXPECT_EQ(behind(now), std::vector<std::string>{"b"});
  ASSERT_TRUE(use_next_authority(folder).ok());
  ASSERT_TRUE(registrar.use(authorities()).ok());
  EXPECT_EQ(behind(now), (std::vector<std::string>{"a", "b"})) << "they have certificates of the old one";
  news.members["a"] = registrar.sign("a", key, now)->member;
  news.members.erase("b");
  registrar.hear(news);
  EXPECT_EQ(behind(now), std::vector<std::string>{"b"});
}

// Its disk may have been full when the answer came, or its agent was killed.
TEST_F(RegistrarTest, WhatANodeWasGivenCountsWhenItHasShownThatItHasIt) {
  Registrar registrar = open();
  const pki::PublicKey key = new_key();
  const auto renew = [&](const std::string& shown, const std::vector<std::string>& trusted) {
    auto made = *registrar.sign("a", key, now);
    registrar.note_stored(made.member, *pki::read_certificate(shown), trusted);
    driver::Delivery news;
    news.members["a"] = made.member;
    registrar.hear(news);
    return made.certificate;
  };
  const auto joined = *registrar.sign("a", key, now);
  driver::Delivery news;
  news.members["a"] = joined.member;
  registrar.hear(news);
  ASSERT_TRUE(make_next_authority(folder, now).ok());
  ASSERT_TRUE(registrar.use(authorities()).ok());
  const std::string before = registrar.fingerprint();
  const std::string next = registrar.standing(now).next;
  renew(joined.certificate, {before});
  EXPECT_TRUE(registrar.is_behind("a")) << "it was told of the next one, and may not have stored it";
  renew(joined.certificate, {before, next});
  EXPECT_FALSE(registrar.is_behind("a"));
  ASSERT_TRUE(use_next_authority(folder).ok());
  ASSERT_TRUE(registrar.use(authorities()).ok());
  EXPECT_TRUE(registrar.is_behind("a"));
  renew(joined.certificate, {before, next});
  const std::string stored = renew(joined.certificate, {before, next});
  EXPECT_TRUE(registrar.is_behind("a")) << "it shows the old one still";
  renew(stored, {before, next});
  EXPECT_FALSE(registrar.is_behind("a"));
  renew(joined.certificate, {});
  EXPECT_FALSE(registrar.is_behind("a")) << "agents of earlier versions do not tell";
}

TEST_F(RegistrarTest, TheTimeInWhichNoControllerWasThereDoesNotCount) {
  Registrar registrar = open();
  const auto made = *registrar.sign("a", new_key(), now);
  const auto identity = *pki::read_certificate(made.certificate);
  const auto knows = [&](Instant from, Instant to) {
    registrar.know({{"a", made.member}}, {from, to});
    return registrar.check(identity, to + 1min).ok();
  };
  EXPECT_TRUE(knows(now + 1h, now + 50h));
  EXPECT_FALSE(registrar.check(identity, now + 50h + 24h).ok()) << "and not for ever";
  EXPECT_FALSE(knows(now + 25h, now + 50h)) << "it had expired before";
  EXPECT_FALSE(knows(now + 1h, now + 1h + cluster::members_kept + 24h)) << "longer than anybody is kept";
  EXPECT_FALSE(knows(now + 50h, now + 40h)) << "the clock was set back";
}

TEST_F(RegistrarTest, TheTimeInWhichNothingCouldBeStoredDoesNotCount) {
  Registrar registrar = open();
  const auto made = *registrar.sign("a", new_key(), now);
  const auto identity = *pki::read_certificate(made.certificate);
  registrar.know({{"a", made.member}}, {});
  const auto fails = [&](Instant from, Instant to) {
    for (Instant tried = from; tried < to; tried += renewals_apart_max) registrar.could_not_store(tried);
  };
  fails(now + 16h, now + 30h);
  EXPECT_TRUE(registrar.check(identity, now + 30h).ok());
  EXPECT_TRUE(registrar.check(identity, now + 37h).ok());
  EXPECT_FALSE(registrar.check(identity, now + 39h).ok()) << "what is left of it, and no more";
  fails(now + 35h, now + 40h);
  EXPECT_TRUE(registrar.check(identity, now + 42h).ok()) << "and again";
  fails(now + 60h, now + 80h);
  EXPECT_FALSE(registrar.check(identity, now + 60h).ok()) << "it had expired before";
  const auto later = *registrar.sign("a", new_key(), now + 81h);
  registrar.know({{"a", later.member}}, {});
  const auto renewed = *pki::read_certificate(later.certificate);
  EXPECT_FALSE(registrar.check(renewed, now + 81h + 24h).ok()) << "what was before it does not count for it";
}

// Each time that the disk is full for a moment.
TEST_F(RegistrarTest, OfTimesInWhichNothingCouldBeStoredOnlySoManyAreRemembered) {
  Registrar registrar = open();
  const auto made = *registrar.sign("a", new_key(), now);
  const auto identity = *pki::read_certificate(made.certificate);
  registrar.know({{"a", made.member}}, {});
  for (int time = 0; time < 100'000; ++time) registrar.could_not_store(now + time * 3min);
  EXPECT_FALSE(registrar.check(identity, now + 24h + unstored_max * renewals_apart_max).ok());
}

TEST_F(RegistrarTest, ItsOwnCertificateIsRenewedInTimeAndIsNoNodes) {
  Registrar registrar = open();
  const auto shown = registrar.server_identity(now);
  ASSERT_TRUE(shown.ok()) << shown.error().text();
  const auto identity = *pki::read_certificate(shown->certificates);
  EXPECT_EQ(identity.name.role, pki::Role::controller);
  EXPECT_FALSE(registrar.check(identity, now).ok());
  EXPECT_FALSE(registrar.is_due(now));
  EXPECT_TRUE(registrar.is_due(now + pki::controller_life * 2 / 3));
  EXPECT_TRUE(registrar.is_due(now - 1h)) << "the clock was set back";
}

TEST_F(RegistrarTest, WhoeverIsCalledOtherwiseNeedsAnotherCertificate) {
  Registrar registrar = open();
  EXPECT_FALSE(registrar.set_addresses({"127.0.0.1"}));
  EXPECT_TRUE(registrar.set_addresses({"127.0.0.1", "10.0.0.1"}));
  EXPECT_FALSE(registrar.set_addresses({"127.0.0.1", "10.0.0.1"}));
}

// Such as of a machine that has started and has not asked anybody for the time yet.
TEST_F(RegistrarTest, ItsOwnCertificateIsGoodForOthersWhateverItsClock) {
  Registrar registrar = open();
  const Instant right = now + 100h;
  registrar.know({}, {right - 1h, right});
  for (const Duration off : {Duration(5h), Duration(-5h), Duration(-99h)}) {
    const auto shown = registrar.server_identity(right + off);
    ASSERT_TRUE(shown.ok()) << shown.error().text();
    EXPECT_TRUE(pki::check_time(*pki::read_certificate(shown->certificates), right).ok())
        << format_duration(off);
  }
}

TEST(CheckClock, SaysByHowMuchAClockIsWrong) {
  EXPECT_TRUE(check_clock(now + 4min, now).ok());
  const auto ahead = check_clock(now + 3h, now);
  ASSERT_FALSE(ahead.ok());
  EXPECT_NE(ahead.error().message().find("3h ahead of"), std::string::npos) << ahead.error().message();
  EXPECT_NE(check_clock(now - 1h, now).error().message().find("1h behind"), std::string::npos);
}

}  // namespace
}  // namespace tutti::controller
