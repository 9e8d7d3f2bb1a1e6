package store_test

import "testing"

func TestSQLite(t *testing.T) { t.Parallel(); exercise(t, onSQLite()) }
func TestMySQL(t *testing.T)  { t.Parallel(); exercise(t, onMySQL()) }

// exercise is what a store promises, whatever its databases are.
func exercise(t *testing.T, p place) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, p place)
	}{
		// insert_test.go
		{"one task is stored as it was given", insertsOne},
		{"a batch is answered in order", insertsABatch},
		{"nothing to insert", insertsNothing},
		{"every 64-bit id is taken", insertsEveryID},
		{"every attribute comes back byte by byte", insertsEveryAttribute},
		{"the largest batch fits", insertsTheLargestBatch},
		{"a row's own fault is its own", insertsAllButBadRows},
		{"without ids nothing is inserted", refusesInsertsWithoutIDs},
		{"the caller may stop waiting", callersLeave},
		{"single inserts share commits", insertsShareCommits},
		// dedup_test.go
		{"the same key again gives the first task", dedupGivesTheFirst},
		{"keys are compared byte by byte", dedupIsExact},
		{"the same key twice in a batch", dedupWithinABatch},
		{"the same key from many callers", dedupUnderConcurrency},
		{"the key of a task that is over", dedupOutlivesTheTask},
		{"a new task takes the key of one that is over", againTakesTheKey},
		{"one of many callers takes the key", againUnderConcurrency},
		// collision_test.go
		{"a taken job_id is replaced", collisionOfOne},
		{"two processes with one worker number", collisionOfProcesses},
		{"two processes with one worker number at the same time", collisionUnderConcurrency},
		// due_test.go, due_model_test.go
		{"all due tasks are read once, whatever the page", dueReadsAllOnce},
		{"a partition's tables and no others", dueReadsItsPartition},
		{"due is pending and in time", dueIsPendingAndInTime},
		{"reading goes on from a place", dueGoesOnFromAPlace},
		{"biz_types are selected", dueSelectsBizTypes},
		{"many tasks due at one moment in one table", dueUnderSkew},
		{"times written by hand", dueByHand},
		{"when a partition is due next", nextDue},
		{"reading goes on after an error", dueGoesOnAfterAnError},
		{"reading agrees with a model", dueAgainstAModel},
		// look_test.go
		{"tasks are loaded by job_id", loads},
		{"more ids than a statement takes", loadsMany},
		{"one task is looked up", getsOne},
		{"the tasks of a biz_id are listed", lists},
		{"texts are ids, too", textsAreIDs},
		{"tasks of all shards are listed", walks},
		{"a walk ends whatever is changed meanwhile", walksWhileMoved},
		{"a walk past times of other zones", walksPastOtherZones},
		{"a list is as of its first page", listsAsOf},
		{"the times of what is to come", looksAhead},
		{"a later task of the same biz_id", findsSuperseded},
		{"one task of a biz_id is the latest", oneIsLatest},
		{"what consumers have", readsLeases},
		{"starts are counted in rows", countsStarts},
		{"own indexes and columns do no harm", worksBesideOwnColumns},
		{"overdue tasks are summed up", sumsUpOverdue},
		{"tasks that run again are summed up", sumsUpRetrying},
		{"a ping tells which database", pings},
		// running_test.go
		// control_test.go
		{"what is paused", controls},
		// audit_test.go
		{"the audit is read across databases", audits},
		{"the audit has an entry once", auditsOnce},
		{"the audit of an actor is read in pieces", auditsInPieces},
		{"the audit goes around a database that is away", auditsAround},
		// operation_test.go
		{"an operation changes what matches", operates},
		{"an operation is read as it was written", readsOperations},
		{"a retry changes what has failed and waits", retries},
		{"an operation changes nothing twice", operatesOnce},
		{"an operation counts what it skips", operatesAround},
		{"an operation ends", stopsOperations},
		{"an operation is undone", undoes},
		{"a discard is undone", undoesDiscards},
		{"an undo ends", stopsUndoes},
		{"an operation starts in all databases", startsNoHalfOperation},
		{"the oldest operations run", runsTheOldest},
		// dead_test.go
		{"the dead of all shards are listed and counted", listsTheDead},
		{"the dead are filtered", filtersTheDead},
		{"the dead are grouped by their error", groupsTheDead},
		{"what is over for long is purged", purges},
		{"dead tasks are purged by their death", purgesTheDead},
		{"a purge takes small bites", purgesInSmallBatches},
		{"a purge leaves what came back to life", purgesNoRevived},
		{"a database has a clock of its own", tellsTheTime},
		// move_test.go
		{"a move applies to what it expects", movesFromWhatIs},
		{"moves that are none are refused", refusesOtherMoves},
		{"a move writes what is set", movesWriteWhatIsSet},
		{"a move applies to what was read", movesWhatWasRead},
		{"a time is the same however it is written", movesHowItWasWritten},
		{"a promise stands", promisesStay},
		{"ids of nobody are not moved", movesNothingForeign},
		{"moves of all kinds in one batch, tried twice", movesOfAllKindsAtOnce},
		{"an edit in the millisecond of a batch", anEditInTheMillisecondOfABatch},
		{"one task twice in a batch", movesOneTaskTwice},
		{"a redrive is for the dead", redrivesOnlyTheDead},
		{"an admin's moves count", adminsMovesCount},
		{"a batch is moved whole or not at all", movesAllOrNothing},
		// failed_runs_test.go
		{"each failed run is kept", keepsFailedRuns},
		{"the newest failed runs are kept", boundsFailedRuns},
		{"a failed run is told once", losesNoFailedRun},
		{"lists read no failed runs", readsNoErrors},
		// race_test.go
		{"one of many movers wins", oneMoverWins},
		{"batches and single moves race", batchesRace},
		{"single moves share commits", movesShareCommits},
		{"stamps rise", stampsRise},
		// lock_test.go
		{"a lock keeps others out", locksOutOthers},
		{"what is unsettled is passed on", passesOnWhatIsUnsettled},
		{"a lock dies with its process", locksDieWithTheirProcess},
		// fault_test.go, outage_test.go
		{"an insert whose answer is lost", insertAnswerIsLost},
		{"moves whose answer is lost", moveAnswerIsLost},
		{"an outage between two rounds of an insert", collisionThenOutage},
		{"an outage before the look-up", lookUpFails},
		{"a database without tables says so", saysWhatIsMissing},
		{"what one database refuses is its own affair", singlesSufferNotFromOthers},
		// durability_test.go
		{"what is answered is on disk", isDurable},
		// model_test.go
		{"the columns are those of the migrations", columnsAreTheMigrations},
		{"the indexes are those of the migrations", indexesAreThere},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t, p) })
	}
}
