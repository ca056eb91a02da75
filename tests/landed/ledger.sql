BEGIN TRANSACTION;
CREATE TABLE attempts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, operation TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL);
INSERT INTO "attempts" VALUES(1,'op1',1);
INSERT INTO "attempts" VALUES(2,'op2',1);
INSERT INTO "attempts" VALUES(3,'op3',1);
INSERT INTO "attempts" VALUES(4,'op4',1);
INSERT INTO "attempts" VALUES(5,'op5',1);
INSERT INTO "attempts" VALUES(6,'op6',1);
INSERT INTO "attempts" VALUES(7,'op7',1);
INSERT INTO "attempts" VALUES(8,'op8',1);
INSERT INTO "attempts" VALUES(9,'op9',1);
INSERT INTO "attempts" VALUES(10,'op10',1);
INSERT INTO "attempts" VALUES(11,'op11',1);
CREATE TABLE functions (gpu TEXT PRIMARY KEY);
INSERT INTO "functions" VALUES('0000:02:00.0');
CREATE TABLE gpus (address TEXT PRIMARY KEY);
INSERT INTO "gpus" VALUES('0000:01:00.0');
INSERT INTO "gpus" VALUES('0000:02:00.0');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('site','s');
INSERT INTO "meta" VALUES('epoch','1');
INSERT INTO "meta" VALUES('restored_boot','boot-1');
CREATE TABLE owners (
  object TEXT PRIMARY KEY, vm TEXT NOT NULL, boot_id TEXT, detail TEXT NOT NULL);
INSERT INTO "owners" VALUES('mdev:0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11','a','boot-1','0000:01:00.0 GRID T4-2Q');
INSERT INTO "owners" VALUES('vf:0000:02:00.1','b','boot-1','1148 NVIDIA L40S-2Q');
INSERT INTO "owners" VALUES('mdev:2b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11','asks','boot-1','0000:01:00.0 GRID T4-2Q');
INSERT INTO "owners" VALUES('domain:a','a',NULL,'digest');
CREATE TABLE wanted (
  vm TEXT PRIMARY KEY, running INTEGER NOT NULL DEFAULT 0, boot_policy TEXT NOT NULL DEFAULT 'local',
  device TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '');
INSERT INTO "wanted" VALUES('a',1,'local','{"action": "CreateMdev", "vm": "a", "uuid": "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11", "parent": "0000:01:00.0", "type_name": "GRID T4-2Q"}','');
INSERT INTO "wanted" VALUES('b',1,'local','{"action": "SetVgpuType", "vm": "b", "vf": "0000:02:00.1", "type_name": "NVIDIA L40S-2Q"}','');
INSERT INTO "wanted" VALUES('stopped',0,'local','','');
INSERT INTO "wanted" VALUES('asks',1,'ask-controller','{"action": "CreateMdev", "vm": "asks", "uuid": "2b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11", "parent": "0000:01:00.0", "type_name": "GRID T4-2Q"}','');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('attempts',11);
COMMIT;
