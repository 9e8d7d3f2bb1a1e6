package store_test

const holderEnv = "TOC_TEST_HOLDER"

func holdLock() {}
