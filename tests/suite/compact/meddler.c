/* A module that learns of each change of a counter set, and at that moment reads the set, or deletes its key. The name of the key
   selects which. */
#include <stddef.h>
#include <string.h>

typedef struct Context Context;
typedef struct String String;
typedef struct Reply Reply;

static int (*GetApi)(const char *, void *);
static void (*SetModuleAttribs)(Context *, const char *, int, int);
static int (*SubscribeToKeyspaceEvents)(Context *, int, int (*)(Context *, int, const char *, String *));
static Reply *(*Call)(Context *, const char *, const char *, ...);
static void (*FreeCallReply)(Reply *);
static const char *(*StringPtrLen)(const String *, size_t *);

/* Events of modules. */
#define NOTIFY_MODULE (1 << 13)

static int on_event(Context *context, int type, const char *event, String *key) {
    (void)type;
    if (strncmp(event, "ct.", 3) != 0) return 0;
    const char *name = StringPtrLen(key, NULL);
    Reply *reply = NULL;
    if (strcmp(name, "read") == 0) reply = Call(context, "CT.GET", "sc", key, "1");
    if (strcmp(name, "deleted") == 0) reply = Call(context, "DEL", "s", key);
    if (reply != NULL) FreeCallReply(reply);
    return 0;
}

int RedisModule_OnLoad(Context *context, String **argv, int argc) {
    (void)argv;
    (void)argc;
    GetApi = *(int (**)(const char *, void *))context;
    GetApi("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    GetApi("RedisModule_SubscribeToKeyspaceEvents", &SubscribeToKeyspaceEvents);
    GetApi("RedisModule_Call", &Call);
    GetApi("RedisModule_FreeCallReply", &FreeCallReply);
    GetApi("RedisModule_StringPtrLen", &StringPtrLen);
    SetModuleAttribs(context, "meddler", 1, 1);
    return SubscribeToKeyspaceEvents(context, NOTIFY_MODULE, on_event);
}
